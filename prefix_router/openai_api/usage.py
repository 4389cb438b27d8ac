"""Token counts of a response, read from its own `usage` object.

Three dialects say the same thing in three ways:

- Chat, completions, embeddings: `prompt_tokens`, of which `prompt_tokens_details.cached_tokens`.
- Responses: `input_tokens`, of which `input_tokens_details.cached_tokens`.
- Anthropic messages: `input_tokens` plus `cache_read_input_tokens` plus `cache_creation_input_tokens`.

In Anthropic's contract `input_tokens` leaves out what the cache gave. vLLM keeps to it whenever it sends
`cache_read_input_tokens` at all; without that field (older versions, or no `--enable-prompt-tokens-details`)
its `input_tokens` is the whole prompt. So the sum above is the prompt length either way.

A count that the response does not carry is None, never 0: "not reported" and "nothing cached" lead an
operator to different conclusions.

Decoding is typed: msgspec skips everything that is not asked for, so cost is one pass over the bytes and
memory is a few integers. Nothing here raises, whatever the bytes are, and nothing keeps a response's text
beyond `finish`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

MAX_JSON_BODY_BYTES = 1024 * 1024
"""A larger response is not collected and its usage stays unknown: it is embeddings or log probabilities."""

MAX_RESPONSE_ID_CHARACTERS = 256
"""A longer id is not remembered by anybody: vLLM's have 37 characters."""

UNDECODABLE = (ValueError, RecursionError)
"""All that decoding of arbitrary bytes raises: not JSON, not UTF-8, another shape; nested too deep."""

ABSENT = msgspec.Raw(b"null")
"""The undecoded value of a field that is not there."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response; None for what it does not report.

    `cached_tokens` are those of `prompt_tokens` that the engine found in its prefix cache.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class WireUsage(msgspec.Struct):
    """A `usage` object as it is on the wire, in whichever dialect."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None

    def update(self, newer: WireUsage) -> None:
        """Take over every field that `newer` reports.

        Anthropic splits one usage over `message_start` and `message_delta`, and servers differ in which half
        carries the cache counts; continuous usage of the OpenAI dialect repeats all fields in every event.
        """
        for name in newer.__struct_fields__:
            value = getattr(newer, name)
            if value is not None:
                setattr(self, name, value)

    def usage(self) -> Usage | None:
        """Return the counts in one shape, or None when there are none."""
        prompt = self.input_tokens if self.prompt_tokens is None else self.prompt_tokens
        details = self.prompt_tokens_details or self.input_tokens_details
        if details is not None:
            cached = details.cached_tokens
        else:
            cached = self.cache_read_input_tokens
            if prompt is not None and self.prompt_tokens is None:
                prompt += (cached or 0) + (self.cache_creation_input_tokens or 0)
        completion = self.output_tokens if self.completion_tokens is None else self.completion_tokens
        if prompt is None and cached is None and completion is None:
            return None
        return Usage(prompt, cached, completion)


class ResponseObject(msgspec.Struct):
    """The few fields that are read of a response body, and of a response nested in a stream event."""

    id: msgspec.Raw = ABSENT
    object: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT

    def response_id(self) -> str | None:
        """The id when this is an object of the Responses API, the only API whose ids can be continued."""
        if bytes(self.object) != b'"response"':
            return None
        try:
            identifier = _STRING.decode(self.id)
        except UNDECODABLE:
            return None
        return identifier if 0 < len(identifier) <= MAX_RESPONSE_ID_CHARACTERS else None


_STRING = msgspec.json.Decoder(str)
_USAGE = msgspec.json.Decoder(WireUsage)
_OBJECT = msgspec.json.Decoder(ResponseObject)


def wire_usage(raw: bytes | msgspec.Raw) -> WireUsage | None:
    """Decode a `usage` object; None for null and for anything else that is not one."""
    try:
        return _USAGE.decode(raw)
    except UNDECODABLE:
        return None


def response_object(raw: bytes | msgspec.Raw) -> ResponseObject | None:
    """Decode the fields of a response that are of interest; None when it is not a JSON object."""
    try:
        return _OBJECT.decode(raw)
    except UNDECODABLE:
        return None


def usage_of(body: bytes) -> Usage | None:
    """Return the token counts of a whole JSON response body, or None when it reports none. Never raises."""
    response = response_object(body)
    wire = None if response is None else wire_usage(response.usage)
    return None if wire is None else wire.usage()


class JsonUsageObserver:
    """Watches a response that is one JSON document; it knows something only after `finish`.

    It keeps references to the relay's own chunks, at most `limit_bytes` of them, and gives up for good
    beyond that. vLLM writes `usage` after the choices, so nothing shorter than the whole document will do.
    """

    __slots__ = ("_chunks", "_limit_bytes", "_size_bytes", "response_id", "usage")

    first_content = False
    terminal = False
    error = False

    def __init__(self, limit_bytes: int = MAX_JSON_BODY_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._chunks: list[bytes] = []
        self.usage: Usage | None = None
        self.response_id: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        self._size_bytes += len(chunk)
        if self._size_bytes > self._limit_bytes:
            self._chunks.clear()
        else:
            self._chunks.append(chunk)

    def finish(self) -> None:
        """Read the collected body: it has ended, whole or not."""
        response = response_object(b"".join(self._chunks))
        self._chunks.clear()
        if response is None:
            return
        wire = wire_usage(response.usage)
        self.usage = None if wire is None else wire.usage()
        self.response_id = response.response_id()
