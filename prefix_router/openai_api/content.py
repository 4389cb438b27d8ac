"""The content of messages, as parts: text, media, and calls of tools.

The three chat dialects (chat completions, Responses, Anthropic messages) spell the same content in different
ways, and vLLM renders them into the same prompt. They are read into the same parts here, so that the same
conversation has the same key through each of them. A plain string is the same as a single text part.

What is left out does not reach the prompt or does not stay the same in it: ids of calls, `cache_control`
marks (clients move them from turn to turn), the `detail` of an image.

Everything here is pure and raises one of `UNDECODABLE` for content that is not shaped as its API says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw

from prefix_router.openai_api.allowance import Allowance
from prefix_router.openai_api.raw_json import ABSENT, Head, is_present, items, string


class Part(NamedTuple):
    """A piece of a turn.

    counted: whether its text counts against the prefix length; if not, it is hashed whole: media are known
    by all of their URL or data, because the URLs of one bucket share a head.
    """

    kind: str
    text: str
    counted: bool = True


Content = str | Head | None
"""`content` as all dialects have it: text, or an array of parts."""


class _Text(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: str | None = None


class _Source(msgspec.Struct):
    url: str | None = None
    data: str | None = None


class _Media(msgspec.Struct):
    image_url: str | _Source | None = None
    video_url: str | _Source | None = None
    audio_url: str | _Source | None = None
    input_audio: _Source | None = None
    source: _Source | None = None
    uuid: str | None = None


class _ToolUse(msgspec.Struct):
    name: str | None = None
    input: Raw = ABSENT


class _ToolResult(msgspec.Struct):
    content: Content = None


class Function(msgspec.Struct):
    """A call of a tool: its name, and its arguments as JSON text or as an object."""

    name: str | None = None
    arguments: Raw = ABSENT


class _ToolCall(msgspec.Struct):
    function: Function | None = None


_text_or_part = msgspec.json.Decoder(str | _Text)
_media = msgspec.json.Decoder(_Media)
_tool_use = msgspec.json.Decoder(_ToolUse)
_tool_result = msgspec.json.Decoder(_ToolResult)
_tool_call = msgspec.json.Decoder(_ToolCall)

_KINDS_OF_TEXT = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "thinking",
    "summary_text": "thinking",
}
_NOT_IN_THE_PROMPT = frozenset({"cache_control"})


def parts(content: Content, allowance: Allowance, *, nested: bool = False) -> Iterator[Part]:
    """Yield the parts of a message's content, as many as are allowed.

    nested: inside a tool result, where no further tool result is opened. Else a body of nothing but nested
    results would be passed over again at each of its levels.
    """
    if isinstance(content, str):
        yield Part("text", content)
        return
    for raw in items(content):
        if not allowance.part():
            return
        part = _text_or_part.decode(raw)
        if isinstance(part, str):
            yield Part("text", part)
            continue
        kind = part.type or "text"
        if kind in _KINDS_OF_TEXT and part.text is not None:
            yield Part(_KINDS_OF_TEXT[kind], part.text)
        elif kind == "refusal" and part.refusal is not None:
            yield Part("refusal", part.refusal)
        elif kind == "thinking" and part.thinking is not None:
            yield Part("thinking", part.thinking)
        elif kind == "tool_use":
            use = _tool_use.decode(raw)
            yield from call(use.name, use.input, allowance)
        elif kind == "tool_result" and not nested:
            yield Part("tool_result", "", counted=False)
            yield from parts(_tool_result.decode(raw).content, allowance, nested=True)
        else:
            yield from _medium(kind, raw, allowance)


def call(name: str | None, arguments: Raw, allowance: Allowance) -> Iterator[Part]:
    """Yield the parts of a tool call. Its id is not one: a client or an engine draws it at random."""
    yield Part("call", name or "", counted=False)
    if is_present(arguments):
        yield Part("arguments", allowance.text(arguments))


def calls(tool_calls: Head | None, allowance: Allowance) -> Iterator[Part]:
    """Yield the parts of a chat message's `tool_calls`, as many as are allowed."""
    for raw in items(tool_calls):
        if not allowance.part():
            return
        function = _tool_call.decode(raw).function
        if function is not None:
            yield from call(function.name, function.arguments, allowance)


def _medium(kind: str, raw: Raw, allowance: Allowance) -> Iterator[Part]:
    try:
        medium = _media.decode(raw)
    except msgspec.ValidationError:  # some other part with a member of one of these names
        medium = _Media()
    identity = medium.image_url or medium.video_url or medium.audio_url or medium.input_audio or medium.source
    if isinstance(identity, _Source):
        identity = identity.url or identity.data
    if identity is None:
        identity = allowance.canonical(raw, without=_NOT_IN_THE_PROMPT).decode()
    yield Part(kind, identity, counted=False)
    if medium.uuid is not None:
        yield Part("uuid", medium.uuid, counted=False)


def named(name: Raw) -> Iterator[Part]:
    """Yield the part that a message's `name` is."""
    own = string(name)
    if own:
        yield Part("name", own, counted=False)
