"""Which fields of a body make up its prompt, for each family of APIs.

One function per family takes the undecoded fields of a body and returns its `Prompt`, or None when there is
nothing in it to hash. Text of the chat families is read so that the same conversation comes out the same:
`instructions` and `system` are the system turn, a plain `input` is the first user turn.

Of several prompts in one body (a list of strings, a list of id lists) the first one counts: they are
rendered one by one, and the first is what a repeated request has in common.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec
from msgspec import Raw

from prefix_router.openai_api import turns
from prefix_router.openai_api.prompt import Prompt, Reader
from prefix_router.openai_api.raw_json import ABSENT, Head, first_item, first_lead, is_present, items, lead


class Fields(msgspec.Struct):
    """The top-level fields of a body that routing looks at, undecoded. Others are passed over."""

    model: Raw = ABSENT
    stream: Raw = ABSENT
    cache_salt: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    previous_response_id: Raw = ABSENT
    # fields that shape a chat prompt as a whole
    tools: Raw = ABSENT
    functions: Raw = ABSENT
    documents: Raw = ABSENT
    chat_template: Raw = ABSENT
    chat_template_kwargs: Raw = ABSENT
    mm_processor_kwargs: Raw = ABSENT
    reasoning_effort: Raw = ABSENT
    reasoning: Raw = ABSENT
    output_config: Raw = ABSENT
    # prompts
    system: Raw = ABSENT
    instructions: Raw = ABSENT
    input: Raw = ABSENT
    prompt: Raw = ABSENT
    prompt_embeds: Raw = ABSENT
    prompt_token_ids: Raw = ABSENT
    token_ids: Raw = ABSENT
    input_ids: Raw = ABSENT
    features: Raw = ABSENT
    # what is compared with what
    query: Raw = ABSENT
    queries: Raw = ABSENT
    items: Raw = ABSENT
    text_1: Raw = ABSENT
    text_2: Raw = ABSENT
    data_1: Raw = ABSENT
    data_2: Raw = ABSENT


class Body(Fields):
    """All of `Fields`, and the conversation."""

    messages: turns.Messages | None = None


class _Effort(msgspec.Struct):
    effort: Raw = ABSENT


class _Features(msgspec.Struct):
    mm_hashes: Raw = ABSENT


_array = msgspec.json.Decoder(Head)
_effort = msgspec.json.Decoder(_Effort)
_features = msgspec.json.Decoder(_Features)


_CHAT_FIELDS = (
    "tools",
    "functions",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "reasoning_effort",
)
_chat_values = attrgetter(*_CHAT_FIELDS)


def chat(body: Body) -> Prompt | None:
    """Chat completions, and whatever else takes `messages` of that form."""
    messages = items(body.messages)
    if not messages:
        return None
    values = _chat_values(body)
    absent = values.count(ABSENT) == len(values)  # as with most requests
    fields = () if absent else tuple(zip(_CHAT_FIELDS, values, strict=True))
    return Prompt(fields=fields, messages=messages, read_message=turns.chat_turn)


def anthropic(body: Body) -> Prompt | None:
    """Anthropic messages: vLLM turns `system` into a system message and the rest into chat messages."""
    messages = items(body.messages)
    if not messages:
        return None
    fields = (
        ("tools", body.tools),
        ("chat_template_kwargs", body.chat_template_kwargs),
        ("reasoning_effort", _effort_of(body.output_config)),
    )
    return Prompt(
        fields=fields,
        opening=_present((turns.anthropic_system, body.system)),
        messages=messages,
        read_message=turns.anthropic_turn,
    )


def responses(body: Body) -> Prompt | None:
    """Responses: `input` is the user's text, or an array of messages, calls and their outputs."""
    fields = (
        ("tools", body.tools),
        ("chat_template", body.chat_template),
        ("chat_template_kwargs", body.chat_template_kwargs),
        ("mm_processor_kwargs", body.mm_processor_kwargs),
        ("reasoning_effort", _effort_of(body.reasoning)),
    )
    instructions = _present((turns.instructions, body.instructions))
    if lead(body.input) == '"':
        return Prompt(fields=fields, opening=(*instructions, (turns.user_text, body.input)))
    if lead(body.input) != "[":
        return None
    messages = items(_array.decode(body.input))
    if not messages:
        return None
    return Prompt(fields=fields, opening=instructions, messages=messages, read_message=turns.item_turn)


def plain(body: Body) -> Prompt | None:
    """One prompt without roles: token ids, else text, else a chat."""
    for value in (body.prompt_token_ids, body.token_ids, body.input_ids, body.prompt, body.input):
        first = _first_prompt(value)
        if first is None:
            continue
        if lead(first) == "[":
            return Prompt(fields=(("mm_hashes", _hashes_of(body.features)),), ids=first)
        return Prompt(opening=(*_present((turns.embeds, body.prompt_embeds)), (turns.plain_text, first)))
    if is_present(body.prompt_embeds):
        return Prompt(opening=((turns.embeds, body.prompt_embeds),))
    return chat(body)


def comparison(body: Body) -> Prompt | None:
    """Rerank and score: what is compared, then what it is compared with."""
    sides = _present(
        (turns.loose_text, body.query),
        (turns.loose_text, body.queries),
        (turns.loose_text, body.text_1),
        (turns.loose_text, body.data_1),
        (turns.loose_text, body.documents),
        (turns.loose_text, body.items),
        (turns.loose_text, body.text_2),
        (turns.loose_text, body.data_2),
    )
    return Prompt(opening=sides) if sides else None


def by_shape(body: Body) -> Prompt | None:
    """`/invocations`, which takes the body of any API: told by its fields, as vLLM does."""
    for read in (chat, plain, comparison):
        prompt = read(body)
        if prompt is not None:
            return prompt
    return None


def _present(*sources: tuple[Reader, Raw]) -> tuple[tuple[Reader, Raw], ...]:
    return tuple(source for source in sources if is_present(source[1]))


def _effort_of(options: Raw) -> Raw:
    return _effort.decode(options).effort if lead(options) == "{" else ABSENT


def _hashes_of(features: Raw) -> Raw:
    return _features.decode(features).mm_hashes if lead(features) == "{" else ABSENT


def _first_prompt(value: Raw) -> Raw | None:
    """Return a text that is not empty or an array that begins like token ids; None if there is neither."""
    for _ in range(2):
        if lead(value) != "[":
            break
        if first_lead(value) in "-0123456789":
            return value
        value = first_item(value)
    return value if lead(value) == '"' and len(value) > 2 else None
