"""How a log record becomes one line: logfmt for people, JSON for collectors.

One record is one line, whatever is in it. Everything that is not printable is escaped, so that a path or a
header that a client chose can neither forge a second line nor drive a terminal; everything is cut to a
bounded length. Fields come from `extra={"fields": {...}}`, or are made here from a `RequestRecord` under
`extra={"event": ...}`: formatting runs in the writer's thread, not in the event loop.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from prefix_router.observe.events import RequestRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

Field = str | int | float | bool | None

MAX_VALUE_CHARACTERS = 16_384
"""Of a message or a traceback."""

_MAX_PATH_CHARACTERS = 256
_MAX_NAME_CHARACTERS = 128

_QUOTED = frozenset(' "=\\')


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str, keep: str = "") -> str:
    """Escape, as Python would, every character that is neither printable nor in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode()
        for character in text
    )


def request_fields(event: RequestRecord) -> dict[str, Field]:
    """Return the access line of one request: names cut to length, times in milliseconds, the key in hex."""
    return {
        "request_id": cut(event.request_id, _MAX_NAME_CHARACTERS),
        "trace_id": None if event.trace is None else event.trace.trace_id,
        "client": event.client,
        "client_address": event.client_address or None,
        "method": cut(event.method, _MAX_NAME_CHARACTERS),
        "path": cut(event.path.partition("?")[0], _MAX_PATH_CHARACTERS),
        "api": event.api,
        "model": None if event.model is None else cut(event.model, _MAX_NAME_CHARACTERS),
        "stream": event.stream,
        "backend": event.backend,
        "reason": None if event.reason is None else event.reason.value,
        "home": event.home,
        "key": None if event.key is None else f"{event.key:016x}",
        "attempts": event.attempts,
        "retries": ",".join(cause.value for cause in event.retry_causes) or None,
        "status": event.status,
        "outcome": event.outcome.value,
        "error_code": event.error_code,
        "duration_ms": _milliseconds(event.duration_seconds),
        "router_ms": _milliseconds(event.router_seconds),
        "queue_ms": _milliseconds(event.queue_seconds),
        "first_byte_ms": _milliseconds(event.first_byte_seconds),
        "first_token_ms": _milliseconds(event.first_token_seconds),
        "request_bytes": event.request_bytes,
        "response_bytes": event.response_bytes,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "completion_tokens": event.completion_tokens,
        "prompt_length": event.prompt_length,
        "shared_tokens": event.shared_tokens,
        "expected_tokens": event.expected_tokens,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _all_fields(record: logging.LogRecord) -> dict[str, Field]:
    event = getattr(record, "event", None)
    fields: Mapping[str, Field]
    fields = request_fields(event) if isinstance(event, RequestRecord) else getattr(record, "fields", {})
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: dict[str, Field] = {
        "time": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": cut(record.getMessage(), MAX_VALUE_CHARACTERS),
    }
    line.update((name, value) for name, value in fields.items() if value is not None)
    if record.exc_info:
        line["traceback"] = cut(logging.Formatter().formatException(record.exc_info), MAX_VALUE_CHARACTERS)
    return line


class TextFormatter(logging.Formatter):
    """logfmt: `key=value` pairs, values in quotes where they need them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return " ".join(f"{name}={_logfmt(value)}" for name, value in _all_fields(record).items())


class JsonFormatter(logging.Formatter):
    """One JSON object. Line breaks inside values are JSON's own escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            name: printable(value, keep="\n\t") if isinstance(value, str) else value
            for name, value in _all_fields(record).items()
        }
        return msgspec.json.encode(line, enc_hook=str).decode()


def _logfmt(value: Field) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text and text.isprintable() and _QUOTED.isdisjoint(text):
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'
