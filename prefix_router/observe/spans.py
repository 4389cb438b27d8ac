"""What a finished request looks like as spans: names, attributes, times. Values only.

One span of kind SERVER is the whole request; one of kind CLIENT is each attempt at a backend, its child.
Attributes follow the semantic conventions of OpenTelemetry for HTTP and for generative AI where these have a
word, and are called `prefix_router.…` where they do not; docs/tracing.md lists them. Everything here comes
from the `RequestRecord`, which never holds prompt text; what a client may choose is cut to a length.

An error is what is an error for whoever runs the router: 5xx and broken answers. A client that sends nonsense
or leaves is none. For an attempt, as for every HTTP client, 4xx is an error too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prefix_router.observe.events import Outcome
from prefix_router.observe.log_lines import cut
from prefix_router.openai_api.request import KNOWN_PATHS, Api

if TYPE_CHECKING:
    from prefix_router.observe.events import AttemptRecord, RequestRecord, TraceRecord

Value = str | int | float | bool | tuple[str, ...]
"""Of an attribute."""

PROVIDER = "vllm"

FIRST_BYTE_EVENT = "prefix_router.first_byte"
FIRST_TOKEN_EVENT = "prefix_router.first_token"

_MAX_PATH_CHARACTERS = 256
_MAX_NAME_CHARACTERS = 128

_METHODS = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE")
)
_ROUTES = KNOWN_PATHS | {"/v1/models"}
_OPERATIONS = {
    Api.CHAT.value: "chat",
    Api.RESPONSES.value: "chat",
    Api.MESSAGES.value: "chat",
    Api.COMPLETIONS.value: "text_completion",
    Api.GENERATE.value: "text_completion",
    Api.EMBEDDINGS.value: "embeddings",
}


class SpanKind(Enum):
    """Which side of an exchange a span is."""

    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are Unix nanoseconds; ids are numbers, trace_id of 128 bits, span ids of 64.

    parent_id: None for the first of its trace. events: name and time. error: what went wrong, in one word of
    a closed set or a status; None when nothing did.
    """

    name: str
    kind: SpanKind
    trace_id: int
    span_id: int
    parent_id: int | None
    flags: int
    state: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Value]
    events: tuple[tuple[str, int], ...] = ()
    error: str | None = None


def spans_of(record: RequestRecord, scheme: str = "http") -> list[Span]:
    """Return the spans of a request, its own first; none for a request that is not traced or not sampled.

    scheme: of the router's own listener. O(attempts).
    """
    trace = record.trace
    if trace is None or not trace.sampled:
        return []
    name = _name(record)
    trace_id = int(trace.trace_id, 16)
    request = Span(
        name,
        SpanKind.SERVER,
        trace_id,
        trace.span_id,
        trace.parent_id,
        trace.flags,
        trace.state,
        trace.began_unix_ns,
        _moment(trace, record.duration_seconds),
        _attributes(record, scheme),
        tuple(
            (event, _moment(trace, seconds))
            for event, seconds in (
                (FIRST_BYTE_EVENT, record.first_byte_seconds),
                (FIRST_TOKEN_EVENT, record.first_token_seconds),
            )
            if seconds is not None
        ),
        _error(record),
    )
    return [
        request,
        *(
            Span(
                name,
                SpanKind.CLIENT,
                trace_id,
                attempt.span_id,
                trace.span_id,
                trace.flags,
                trace.state,
                _moment(trace, attempt.began_seconds),
                _moment(trace, attempt.ended_seconds),
                _attempt_attributes(record, attempt, number),
                error=_attempt_error(record, attempt),
            )
            for number, attempt in enumerate(trace.attempts)
        ),
    ]


def _moment(trace: TraceRecord, seconds: float) -> int:
    return trace.began_unix_ns + int(seconds * 1e9)


def _name(record: RequestRecord) -> str:
    """Method and path where both are of a closed set: names are what a trace store groups by."""
    method = record.method if record.method in _METHODS else "HTTP"
    return f"{method} {record.path}" if record.path in _ROUTES else method


def _attributes(record: RequestRecord, scheme: str) -> dict[str, Value]:
    retries = tuple(cause.value for cause in record.retry_causes)
    optional: dict[str, Value | None] = {
        **_method(record),
        "client.address": record.client_address or None,
        "url.scheme": scheme,
        "url.path": _text(record.path, _MAX_PATH_CHARACTERS),
        "http.route": record.path if record.path in _ROUTES else None,
        "http.response.status_code": record.status or None,
        "http.request.body.size": record.request_bytes,
        "http.response.body.size": record.response_bytes,
        "error.type": _error(record),
        "gen_ai.operation.name": _OPERATIONS.get(record.api),
        "gen_ai.provider.name": None if record.backend is None else PROVIDER,
        "gen_ai.request.model": _text(record.model, _MAX_NAME_CHARACTERS),
        "gen_ai.request.stream": record.stream or None,
        "gen_ai.response.time_to_first_chunk": record.first_token_seconds,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "prefix_router.request_id": record.request_id,
        "prefix_router.api": record.api,
        "prefix_router.outcome": record.outcome.value,
        "prefix_router.error_code": record.error_code,
        "prefix_router.backend": record.backend,
        "prefix_router.reason": None if record.reason is None else record.reason.value,
        "prefix_router.home": record.home,
        "prefix_router.key": None if record.key is None else f"{record.key:016x}",
        "prefix_router.attempts": record.attempts,
        "prefix_router.retry_causes": retries or None,
        "prefix_router.retry_denied": record.retry_denied or None,
        "prefix_router.queue_seconds": record.queue_seconds,
        "prefix_router.router_seconds": record.router_seconds,
        "prefix_router.first_byte_seconds": record.first_byte_seconds,
        "prefix_router.prompt_length": record.prompt_length,
        "prefix_router.shared_tokens": record.shared_tokens,
        "prefix_router.expected_tokens": record.expected_tokens,
    }
    return {name: value for name, value in optional.items() if value is not None}


def _attempt_attributes(record: RequestRecord, attempt: AttemptRecord, number: int) -> dict[str, Value]:
    parts = urlsplit(attempt.url)
    optional: dict[str, Value | None] = {
        **_method(record),
        "url.full": attempt.url + _shown(cut(record.path, _MAX_PATH_CHARACTERS)),
        "server.address": parts.hostname,
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        "http.request.resend_count": number or None,
        "http.response.status_code": attempt.status or None,
        "error.type": _attempt_error(record, attempt),
        "prefix_router.backend": attempt.backend,
        "prefix_router.reason": attempt.reason.value,
    }
    return {name: value for name, value in optional.items() if value is not None}


def _method(record: RequestRecord) -> dict[str, Value | None]:
    if record.method in _METHODS:
        return {"http.request.method": record.method}
    return {
        "http.request.method": "_OTHER",
        "http.request.method_original": _text(record.method, _MAX_NAME_CHARACTERS),
    }


def _error(record: RequestRecord) -> str | None:
    if record.outcome is Outcome.CLIENT_DISCONNECTED:
        return None
    if record.outcome is Outcome.UPSTREAM_TRUNCATED or record.status >= 500:
        return record.error_code or str(record.status)
    return None


def _attempt_error(record: RequestRecord, attempt: AttemptRecord) -> str | None:
    if attempt.failure is not None:
        return attempt.failure
    if attempt.status >= 400:
        return str(attempt.status)
    if record.outcome is Outcome.UPSTREAM_TRUNCATED:
        return record.error_code  # it broke in the last attempt, and those before it have failed
    return None


def _text(text: str | None, limit: int) -> str | None:
    return None if text is None else _shown(cut(text, limit))


def _shown(text: str) -> str:
    """A text that can be encoded: JSON may hold half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()
