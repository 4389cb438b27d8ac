"""Reads request bodies: a plain one, or one in an envelope with the time and the path that it came with.

    {"messages": [...], ...}
    {"body": {...}, "timestamp": 1712345678.9, "path": "/v1/chat/completions", "completion_tokens": 120}

`timestamp` is seconds or ISO 8601 (without a zone: UTC). `url` is read as `path`, so that a file for the
Batch API is an input, too. A plain body's path is told by its fields. The prompt is read as the router does
it and hashed in blocks; its text is forgotten with the line.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Raw, Struct

from prefix_router.analyze.record import GENERATING, RecordedRequest, UnusableLineError
from prefix_router.fleetsim.request import BLOCK_TOKENS
from prefix_router.openai_api.request import parse
from prefix_router.routing.chain import block_chain

_LATEST_SECONDS = 1e11
"""Larger numbers are milliseconds: as seconds they would be in the year 5138."""

_ABSENT = Raw()
_Count = Annotated[int, Meta(ge=1)]


class Envelope(Struct):
    """What may stand beside a body, and what tells the bodies apart; everything else is skipped."""

    body: Raw = _ABSENT
    timestamp: Raw = _ABSENT
    path: Raw = _ABSENT
    url: Raw = _ABSENT
    completion_tokens: Raw = _ABSENT
    messages: Raw = _ABSENT
    system: Raw = _ABSENT
    prompt: Raw = _ABSENT
    max_completion_tokens: Raw = _ABSENT
    max_output_tokens: Raw = _ABSENT
    max_tokens: Raw = _ABSENT


_envelope = msgspec.json.Decoder(Envelope)
_count = msgspec.json.Decoder(_Count)
_any = msgspec.json.Decoder(Any)


def read_body(line: bytes, path: str | None = None) -> RecordedRequest:
    """The request of a line. Raises UnusableLineError.

    path: where bodies were sent that do not say it themselves; None to tell by their fields.
    """
    outer = _decode(line)
    body, fields = line, outer
    if outer.body:
        body = bytes(outer.body)
        if body.startswith(b'"'):  # some logs keep the body as a text
            body = _text(outer.body).encode()
        fields = _decode(body)
    given = _path(outer.path) or _path(outer.url) or path
    request = parse(given or _guess(fields), None, body, {})
    if request.api not in GENERATING:
        raise UnusableLineError("nothing is generated on its path")
    chain = block_chain(request, BLOCK_TOKENS)
    if chain is None:
        raise UnusableLineError("no prompt that can be read")
    return RecordedRequest(
        chain.names,
        chain.tokens,
        chain.ends[0],
        seconds=_seconds(outer.timestamp),
        output_tokens=_number(outer.completion_tokens),
        most_output_tokens=_number(fields.max_completion_tokens)
        or _number(fields.max_output_tokens)
        or _number(fields.max_tokens),
    )


def _decode(data: bytes) -> Envelope:
    try:
        return _envelope.decode(data)
    except msgspec.ValidationError:
        raise UnusableLineError("not a JSON object") from None
    except (ValueError, RecursionError):
        raise UnusableLineError("not JSON") from None


def _guess(fields: Envelope) -> str:
    if fields.messages:
        return "/v1/messages" if fields.system else "/v1/chat/completions"
    return "/v1/completions" if fields.prompt else "/v1/responses"


def _path(value: Raw) -> str | None:
    return urlsplit(_text(value)).path or None if bytes(value).startswith(b'"') else None


def _text(value: Raw) -> str:
    try:
        return str(_any.decode(value))
    except ValueError:
        raise UnusableLineError("not JSON") from None


def _number(value: Raw) -> int | None:
    try:
        return _count.decode(value) if value else None
    except ValueError:
        return None


def _seconds(value: Raw) -> float | None:
    """A time in seconds, None for anything that is no time."""
    try:
        time = _any.decode(value) if value else None
        if isinstance(time, str):
            moment = datetime.fromisoformat(time)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    if isinstance(time, bool) or not isinstance(time, int | float) or not isfinite(time) or time < 0:
        return None
    return time / 1e3 if time > _LATEST_SECONDS else float(time)
