"""A collector of traces: a real HTTP server that takes OTLP as OpenTelemetry's collector does.

It runs in a thread of its own, so that nothing of it depends on the event loop under test. `refuse_with`
makes it answer with other statuses, one for each request, before it takes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class ReceivedSpan:
    """One span as it came. Ids are in lower-case hexadecimal digits, parent "" for none."""

    def __init__(self, message: Span, resource: dict[str, Any]) -> None:
        self.name = message.name
        self.kind = Span.SpanKind.Name(message.kind).removeprefix("SPAN_KIND_").lower()
        self.trace = message.trace_id.hex()
        self.id = message.span_id.hex()
        self.parent = message.parent_span_id.hex()
        self.state = message.trace_state
        self.flags = message.flags
        self.began_ns, self.ended_ns = message.start_time_unix_nano, message.end_time_unix_nano
        self.attributes = _plain(message.attributes)
        self.events = {event.name: event.time_unix_nano for event in message.events}
        self.failed = message.status.code == message.status.STATUS_CODE_ERROR
        self.resource = resource


class OtlpReceiver:
    """What has come so far. requests: the paths and headers of all export requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.spans: list[ReceivedSpan] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.rejecting = 0

    @property
    def url(self) -> str:
        """What the router is given as its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def of_kind(self, kind: str) -> list[ReceivedSpan]:
        """The spans of a kind, server or client, in the order of their beginnings."""
        return sorted((span for span in self.spans if span.kind == kind), key=lambda span: span.began_ns)

    def refuse_with(self, *statuses: int, **headers: str) -> None:
        """Answer the next requests so, instead of taking what they bring."""
        self.refusals += [(status, headers) for status in statuses]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer one export request."""
        self.requests.append((path, headers))
        if self.refusals:
            return self.refusals.pop(0)[0], b""
        if path != "/v1/traces" or headers.get("content-type") != "application/x-protobuf":
            return 404, b""
        self.bodies.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(group.resource.attributes)
            self.spans += [
                ReceivedSpan(span, resource) for scope in group.scope_spans for span in scope.spans
            ]
        answer = ExportTraceServiceResponse()
        if self.rejecting:
            answer.partial_success.rejected_spans = self.rejecting
            answer.partial_success.error_message = "no room"
        return 200, answer.SerializeToString()


def _plain(attributes: Sequence[Any]) -> dict[str, Any]:
    """Attributes as Python values; each name must be there once."""
    names = [attribute.key for attribute in attributes]
    assert len(set(names)) == len(names), names
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(part) for part in value.array_value.values]
    return getattr(value, kind)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, answer = self.receiver.take(self.path, headers, body)
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[OtlpReceiver]:
    """Run a collector on a loopback port."""

    class Handler(_Handler):
        """With a receiver of its own."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver = Handler.receiver = OtlpReceiver(server.server_address[1])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
