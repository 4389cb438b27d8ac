"""Spans in OpenTelemetry's wire format, OTLP: the one file that needs the extra `prefix_router[tracing]`.

The messages are OpenTelemetry's own (`opentelemetry-proto`). Its SDK is not used: its tracers make spans
while a request runs, where ours are made once it has ended, and its encoder takes several times as long, with
the interpreter's lock held, next to an event loop that waits for it. O(attributes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from prefix_router import __version__
from prefix_router.observe.spans import Span, SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

    from prefix_router.observe.spans import Value

SCOPE: Final = "prefix_router"

_KINDS = {SpanKind.SERVER: Message.SPAN_KIND_SERVER, SpanKind.CLIENT: Message.SPAN_KIND_CLIENT}
_REMOTE_KNOWN, _REMOTE = 0x100, 0x200
"""Bits of a span's flags that say whether its parent is in another process."""


def encoded(spans: Iterable[Span], resource: Mapping[str, Value]) -> bytes:
    """Return an export request with these spans. resource: attributes of whoever sends it."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for name, value in resource.items():
        _set(group.resource.attributes.add(key=name).value, value)
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = SCOPE, __version__
    for span in spans:
        _fill(scope.spans.add(), span)
    data: bytes = request.SerializeToString()
    return data


def rejected(response: bytes) -> tuple[int, str]:
    """Return how many spans a collector did not want, and why, from what it answered.

    An answer that cannot be read rejects nothing: the status has said that it was taken.
    """
    try:
        partial = ExportTraceServiceResponse.FromString(response).partial_success
    except DecodeError:
        return 0, ""
    return partial.rejected_spans, partial.error_message


def _fill(message: Message, span: Span) -> None:
    message.trace_id = span.trace_id.to_bytes(16, "big")
    message.span_id = span.span_id.to_bytes(8, "big")
    if span.parent_id is not None:
        message.parent_span_id = span.parent_id.to_bytes(8, "big")
    remote = _REMOTE if span.kind is SpanKind.SERVER and span.parent_id is not None else 0
    message.flags = span.flags | _REMOTE_KNOWN | remote
    message.trace_state = span.state
    message.name = span.name
    message.kind = _KINDS[span.kind]
    message.start_time_unix_nano, message.end_time_unix_nano = span.began_ns, span.ended_ns
    for name, value in span.attributes.items():
        _set(message.attributes.add(key=name).value, value)
    for name, moment in span.events:
        message.events.add(name=name, time_unix_nano=moment)
    if span.error is not None:
        message.status.code = Status.STATUS_CODE_ERROR


def _set(place: AnyValue, value: Value) -> None:
    # In place and by assignment: to make values and hand them over takes three times as long.
    if isinstance(value, str):
        place.string_value = value
    elif isinstance(value, bool):
        place.bool_value = value
    elif isinstance(value, int):
        place.int_value = value
    elif isinstance(value, float):
        place.double_value = value
    else:
        for part in value:
            place.array_value.values.add(string_value=part)
