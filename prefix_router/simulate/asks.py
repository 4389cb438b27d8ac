"""What an HTTP request asks of the engine, read from the JSON of each API.

Sampling parameters are accepted and ignored: the text is dull whatever the temperature. What decides cost
and reuse is read: the prompts, how many answers, how many tokens, the model, the cache salt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from prefix_router.simulate import forms, prompts, tokens
from prefix_router.simulate.errors import InvalidRequestError

MOST_ANSWERS = 128
"""How many answers one request may ask for, to each of its prompts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for generated text.

    prompts: tokens of each prompt. answers: how many answers to each. max_tokens: of each answer, or None.
    include_usage: whether a stream ends with the usage. form: what each answer has to be.
    """

    model: str | None
    prompts: tuple[bytes, ...]
    max_tokens: int | None
    answers: int = 1
    stream: bool = False
    include_usage: bool = False
    cache_salt: str = ""
    form: forms.Form = forms.WORDS


def decode_body(data: bytes) -> dict[str, Any]:
    """The JSON object of a request body. Raises InvalidRequestError."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return body


def read_chat(body: dict[str, Any], *, auto_tools: bool = False) -> Ask:
    """`/v1/chat/completions`. auto_tools: whether the model may decide to call a tool; see `forms`."""
    limit = read_positive(body, "max_completion_tokens") or read_positive(body, "max_tokens")
    ask = _ask(body, (prompts.render_chat(body),), limit, _answers(body))
    return replace(ask, form=forms.read_chat_form(body, auto_tools=auto_tools))


def read_completion(body: dict[str, Any]) -> Ask:
    """`/v1/completions`."""
    rendered = prompts.render_completion(body.get("prompt"))
    return _ask(body, rendered, read_positive(body, "max_tokens"), _answers(body))


def read_messages(body: dict[str, Any], *, auto_tools: bool = False) -> Ask:
    """`/v1/messages`, in the shape of the Anthropic API. auto_tools: as for `read_chat`."""
    if body.get("max_tokens") is None:
        raise InvalidRequestError("max_tokens is required", "max_tokens")
    ask = _ask(body, (render_messages_prompt(body),), read_positive(body, "max_tokens"))
    return replace(ask, form=forms.read_messages_form(body, auto_tools=auto_tools))


def render_messages_prompt(body: dict[str, Any]) -> bytes:
    """The prompt of an Anthropic request: like a chat whose system prompt stands beside the messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages must be a list with at least one message", "messages")
    return (
        prompts.render_preamble(body)
        + prompts.render_system(body.get("system"))
        + prompts.render_messages(messages)
        + prompts.render_role("assistant")
    )


def render_conversation(body: dict[str, Any]) -> bytes:
    """The messages that a Responses request adds to its conversation."""
    given = body.get("input")
    if isinstance(given, str) and given:
        return prompts.render_messages([{"role": "user", "content": given}])
    if isinstance(given, list) and given:
        return prompts.render_messages(given)
    raise InvalidRequestError("input must be text or a list of items, and not empty", "input")


def read_responses(body: dict[str, Any], conversation: bytes, *, auto_tools: bool = False) -> Ask:
    """`/v1/responses`; `conversation` is all its messages, earlier turns included.

    auto_tools: as for `read_chat`.
    """
    prompt = (
        prompts.render_preamble(body)
        + prompts.render_system(body.get("instructions"))
        + conversation
        + prompts.render_role("assistant")
    )
    ask = _ask(body, (prompt,), read_positive(body, "max_output_tokens"))
    return replace(ask, form=forms.read_responses_form(body, auto_tools=auto_tools))


def read_tokenize(body: dict[str, Any]) -> bytes:
    """`/tokenize`: the tokens of a `prompt` or of a chat's `messages`."""
    if "messages" in body:
        return prompts.render_chat(body)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise InvalidRequestError("prompt must be text", "prompt")
    return tokens.encode(prompt)


def _ask(body: dict[str, Any], rendered: tuple[bytes, ...], max_tokens: int | None, answers: int = 1) -> Ask:
    options = body.get("stream_options")
    return Ask(
        model=read_model(body),
        prompts=rendered,
        max_tokens=max_tokens,
        answers=answers,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        cache_salt=str(body.get("cache_salt") or ""),
    )


def read_model(body: dict[str, Any]) -> str | None:
    """The model a request names, if it names one."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequestError("model must be text", "model")
    return model


def _answers(body: dict[str, Any]) -> int:
    answers = read_positive(body, "n") or 1
    if answers > MOST_ANSWERS:
        raise InvalidRequestError(f"n must be at most {MOST_ANSWERS}, got {answers}", "n")
    return answers


def read_positive(body: dict[str, Any], name: str) -> int | None:
    """A whole number of at least 1, or None when it is not given. Raises InvalidRequestError."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequestError(f"{name} must be a whole number of at least 1, got {value!r}", name)
    return value
