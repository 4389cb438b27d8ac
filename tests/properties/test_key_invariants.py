"""What must and what must not change a key, over requests of all shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prefix_router.openai_api.request import Api, RoutingRequest, parse
from prefix_router.routing.key import (
    PrefixAnchor,
    PrefixKey,
    PrefixRule,
    PrefixUnit,
    hashed_text,
    prefix_key,
)

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Time is not asserted: the machine may be busy."""

CHAT = "/v1/chat/completions"
PATHS = [
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v2/rerank",
    "/score",
    "/pooling",
    "/tokenize",
    "/inference/v1/generate",
    "/invocations",
    "/elsewhere",
]

unicode = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | unicode
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(unicode, inner, max_size=3)
)
arguments = st.dictionaries(unicode, values, max_size=3)
text_parts = st.fixed_dictionaries({"type": st.just("text"), "text": unicode})
image_parts = st.fixed_dictionaries(
    {"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": unicode})}
)
contents = unicode | st.lists(text_parts | image_parts, max_size=3) | st.none()
tool_calls = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": unicode, "arguments": unicode})}),
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": contents},
        optional={"tool_calls": tool_calls, "name": unicode | st.none()},
    ),
    min_size=1,
    max_size=6,
)
chats = st.fixed_dictionaries(
    {"model": unicode, "messages": messages},
    optional={
        "tools": st.lists(arguments, max_size=2),
        "chat_template_kwargs": arguments,
        "cache_salt": unicode,
    },
)
token_rules = st.builds(
    PrefixRule,
    st.integers(1, 60) | st.just(1024),
    st.sampled_from([PrefixUnit.TOKENS, PrefixUnit.CHARACTERS]),
    st.sampled_from(PrefixAnchor),
)

SAMPLING_AND_BOOKKEEPING = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "min_p",
    "n",
    "presence_penalty",
    "priority",
    "request_id",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "top_k",
    "top_p",
    "user",
]


def key_of(written: bytes, rule: PrefixRule, path: str = CHAT) -> PrefixKey | None:
    return prefix_key(parse(path, "application/json", written, {}), rule, written)


def key(body: Mapping[str, Any], rule: PrefixRule) -> PrefixKey:
    found = key_of(json.dumps(body).encode(), rule)
    assert found is not None
    return found


def respelled(value: Any, draw: st.DataObject) -> str:
    """Write a value as JSON with members in another order, odd white space and other escapes."""
    blank = draw.draw(st.sampled_from(["", " ", "\n\t"]))
    if isinstance(value, dict):
        members = draw.draw(st.permutations(list(value.items())))
        if draw.draw(st.booleans()):
            members = [*members, ("unknown to everybody", None)]
        spelled = (f"{respelled(name, draw)}{blank}:{respelled(member, draw)}" for name, member in members)
        return f"{{{blank}{f',{blank}'.join(spelled)}}}{blank}"
    if isinstance(value, list):
        return f"[{blank}{f'{blank},'.join(respelled(element, draw) for element in value)}{blank}]"
    written = json.dumps(value, ensure_ascii=draw.draw(st.booleans()))
    return written.replace("/", "\\/") if draw.draw(st.booleans()) else written


@relaxed
@given(chats, token_rules, st.data())
def test_the_spelling_of_the_json_never_changes_the_key(
    body: dict[str, Any], rule: PrefixRule, data: st.DataObject
) -> None:
    assert key_of(respelled(body, data).encode(), rule) == key(body, rule)


@relaxed
@given(chats, token_rules, st.dictionaries(st.sampled_from(SAMPLING_AND_BOOKKEEPING), values, min_size=1))
def test_sampling_and_bookkeeping_never_change_the_key(
    body: dict[str, Any], rule: PrefixRule, options: dict[str, Any]
) -> None:
    assert key({**options, **body}, rule) == key(body, rule)


@relaxed
@given(chats, token_rules)
def test_a_string_and_a_single_text_part_are_the_same(body: dict[str, Any], rule: PrefixRule) -> None:
    in_parts = [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in body["messages"]
    ]
    assert key({**body, "messages": in_parts}, rule) == key(body, rule)


@relaxed
@given(unicode, unicode, st.integers(1, 80), st.sampled_from(PrefixAnchor))
def test_a_change_of_text_changes_the_key_exactly_when_it_is_within_the_length(
    one: str, two: str, length: int, anchor: PrefixAnchor
) -> None:
    def asked(text: str, unit: PrefixUnit) -> int:
        body = {"messages": [{"role": "user", "content": text}]}
        return key(body, PrefixRule(length, unit, anchor)).value

    same_characters = one[:length] == two[:length]
    same_bytes = one.encode()[: 4 * length] == two.encode()[: 4 * length]
    assert (asked(one, PrefixUnit.CHARACTERS) == asked(two, PrefixUnit.CHARACTERS)) == same_characters
    assert (asked(one, PrefixUnit.TOKENS) == asked(two, PrefixUnit.TOKENS)) == same_bytes


@relaxed
@given(chats, messages)
def test_nothing_after_the_first_user_turn_changes_an_anchored_key(
    body: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    assume(any(message["role"] == "user" for message in body["messages"]))
    longer = {**body, "messages": [*body["messages"], *more]}
    assert key(longer, PrefixRule(1024)) == key(body, PrefixRule(1024))


@relaxed
@given(chats, messages)
def test_nothing_after_the_length_changes_a_key(body: dict[str, Any], more: list[dict[str, Any]]) -> None:
    filled = [*body["messages"], {"role": "assistant", "content": "x" * 200}]
    for unit, length in ((PrefixUnit.TOKENS, 50), (PrefixUnit.CHARACTERS, 200)):
        rule = PrefixRule(length, unit, PrefixAnchor.NONE)
        assert key({**body, "messages": filled + more}, rule) == key({**body, "messages": filled}, rule)


@relaxed
@given(chats, messages)
def test_conversations_differ_in_their_key_exactly_when_they_differ(
    body: dict[str, Any], other: list[dict[str, Any]]
) -> None:
    def plain(said: list[dict[str, Any]]) -> list[Any]:
        """Return what of a conversation is asked to matter, in one spelling."""
        found = []
        for message in said:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            found.append((message["role"], message.get("name") or "", parts, message.get("tool_calls") or []))
        return found

    rule = PrefixRule(100_000, anchor=PrefixAnchor.NONE)
    same = plain(body["messages"]) == plain(other)
    assert (key(body, rule).value == key({**body, "messages": other}, rule).value) == same


@relaxed
@given(chats, st.sampled_from(["model", "cache_salt", "tools", "chat_template_kwargs"]), token_rules)
def test_model_salt_tools_and_template_arguments_always_change_the_key(
    body: dict[str, Any], name: str, rule: PrefixRule
) -> None:
    changed: dict[str, Any] = {
        "model": body["model"] + "+",
        "cache_salt": body.get("cache_salt", "") + "+",
        "tools": [*body.get("tools", []), {"name": "one more"}],
        "chat_template_kwargs": {**body.get("chat_template_kwargs", {}), "one more": 1},
    }
    assert key({**body, name: changed[name]}, rule).value != key(body, rule).value


@relaxed
@given(
    st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")), st.sampled_from(PATHS)
)
def test_no_bytes_make_parsing_or_hashing_fail(body: bytes, path: str) -> None:
    check_any(body, path)


names = st.sampled_from(
    [
        "messages",
        "prompt",
        "input",
        "system",
        "instructions",
        "tools",
        "model",
        "stream",
        "query",
        "documents",
        "token_ids",
        "reasoning",
        "output_config",
        "features",
        "prompt_cache_key",
        "prompt_embeds",
        "cache_salt",
    ]
)
inner_names = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "name",
        "tool_calls",
        "function",
        "arguments",
        "source",
        "url",
        "output",
        "image_url",
        "input_audio",
        "thinking",
        "reasoning",
        "id",
        "summary",
        "uuid",
        "input",
        "function_call",
    ]
)
words = st.sampled_from(
    [
        "user",
        "text",
        "tool_use",
        "tool_result",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]
)
likely = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(inner_names, inner, max_size=5),
    max_leaves=12,
)


@relaxed
@given(st.dictionaries(names, likely, max_size=6), st.sampled_from(PATHS))
def test_no_json_makes_parsing_or_hashing_fail(body: dict[str, Any], path: str) -> None:
    request = check_any(json.dumps(body).encode(), path)
    assert request.model == (body.get("model") or None if isinstance(body.get("model"), str) else None)
    assert request.stream is (body.get("stream") is True)


@relaxed
@given(chats, st.integers(0, 400), st.binary(max_size=3), st.sampled_from(PATHS))
def test_no_damage_to_a_body_makes_parsing_or_hashing_fail(
    body: dict[str, Any], place: int, damage: bytes, path: str
) -> None:
    written = json.dumps(body, ensure_ascii=False).encode()
    check_any(written[:place] + damage + written[place + 1 :], path)


def check_any(body: bytes, path: str) -> RoutingRequest:
    """Check what holds for every body there is."""
    request = parse(path, None, body, {})
    assert (request.prompt is None) == (request.keyless_cause is not None)
    assert path != "/elsewhere" or (request.api is Api.OTHER and request.prompt is None)
    for rule in (
        PrefixRule(1024),
        PrefixRule(3, PrefixUnit.CHARACTERS, PrefixAnchor.NONE),
        PrefixRule(9, PrefixUnit.BYTES),
    ):
        found = prefix_key(request, rule, body)
        assert (found is None) == (hashed_text(request, rule, body) is None)
        if found is not None:
            assert 0 <= found.value < 2**64
            assert 0 <= found.counted < rule.length + 4
    return request


@relaxed
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.integers(1, 60), st.data())
def test_token_ids_are_hashed_to_the_length_and_no_further(
    ids: list[int], length: int, data: st.DataObject
) -> None:
    def asked(prompt: list[int]) -> PrefixKey | None:
        return key_of(json.dumps({"prompt": prompt}).encode(), PrefixRule(length), "/v1/completions")

    found = asked(ids)
    assert found is not None
    assert found.counted == min(length, len(ids))
    more = data.draw(st.lists(st.integers(0, 2**32 - 1), max_size=5))
    assert (asked([*ids, *more]) == found) == (not more or len(ids) >= length)
    place = data.draw(st.integers(0, len(ids) - 1))
    changed = [*ids[:place], (ids[place] + 1) % 2**32, *ids[place + 1 :]]
    assert (asked(changed) == found) == (place >= length)


@relaxed
@given(unicode, unicode, token_rules)
def test_one_conversation_has_one_key_through_every_chat_dialect(
    system: str, user: str, rule: PrefixRule
) -> None:
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    dialects = {
        CHAT: {"messages": turns},
        "/v1/messages": {"system": system, "messages": turns[1:]},
        "/v1/responses": {"instructions": system, "input": user},
        "/invocations": {"messages": turns},
    }
    found = {key_of(json.dumps(body).encode(), rule, path) for path, body in dialects.items()}
    assert len(found) == 1
