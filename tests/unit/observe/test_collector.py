"""The way to a collector, with a real one at its other end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Timer
from typing import Any

import pytest

from prefix_router.observe import collector as collector_module
from prefix_router.observe.collector import Collector
from prefix_router.observe.otlp import rejected
from prefix_router.observe.spans import Span, SpanKind
from tests.support.otlp_receiver import otlp_receiver

NOTHING: dict[str, str] = {}


def span(number: int = 1, **attributes: Any) -> Span:
    return Span("name", SpanKind.CLIENT, 3, number, 9, 1, "a=1", 10, 20, attributes, (("event", 15),), "why")


@pytest.fixture
def to() -> Iterator[Callable[..., Collector]]:
    """Makes ways to collectors, and closes them."""
    with ExitStack() as stack:

        def to(
            url: str, environment: dict[str, str] = NOTHING, authorization: str | None = None
        ) -> Collector:
            way = Collector(url, authorization, "service", environment)
            stack.callback(way.close)
            return way

        yield to


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_FIRST_PAUSE_SECONDS", 0.001)


def test_spans_arrive_with_all_that_is_in_them(to: Callable[..., Collector]) -> None:
    values: dict[str, Any] = {"text": "é", "whole": -(2**40), "real": 0.5, "yes": True, "list": ("a", "b")}
    with otlp_receiver() as receiver:
        assert to(receiver.url).send([span(**values), span(2)]) == (0, "")
        first, second = receiver.spans
    assert first.attributes == {**values, "list": ["a", "b"]}
    assert type(first.attributes["yes"]) is bool
    assert (first.trace, first.id, first.parent, first.state) == (
        f"{3:032x}",
        f"{1:016x}",
        f"{9:016x}",
        "a=1",
    )
    assert (first.kind, first.name, first.began_ns, first.ended_ns) == ("client", "name", 10, 20)
    assert first.events == {"event": 15}
    assert first.failed
    assert second.id == f"{2:016x}"
    assert first.resource["service.name"] == "service"
    assert first.resource["service.version"]


def test_one_connection_is_kept_and_replaced_when_it_was_closed(to: Callable[..., Collector]) -> None:
    with otlp_receiver() as receiver:
        way = to(receiver.url)
        assert way.send([span()]) == (0, "")
        connection = way._connection
        assert connection is not None
        assert way.send([span()]) == (0, "")
        assert way._connection is connection
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert way.send([span()]) == (0, "")
        assert way._connection is not connection
        assert len(receiver.spans) == 3


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_collector_that_may_take_it_later_is_asked_again(to: Callable[..., Collector], status: int) -> None:
    with otlp_receiver() as receiver:
        receiver.refuse_with(status, status)
        assert to(receiver.url).send([span()]) == (0, "")
        assert len(receiver.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 302])
def test_any_other_answer_is_final(to: Callable[..., Collector], status: int) -> None:
    with otlp_receiver() as receiver:
        receiver.refuse_with(status)
        assert to(receiver.url).send([span(), span()]) == (2, f"it answers {status} to /v1/traces")
        assert len(receiver.requests) == 1


def test_what_a_collector_rejects_is_lost(to: Callable[..., Collector]) -> None:
    with otlp_receiver() as receiver:
        receiver.rejecting = 1
        assert to(receiver.url).send([span(), span()]) == (1, "no room")
    assert rejected(b"\xff<html>") == (0, "")


def test_nobody_there(to: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "GIVE_UP_SECONDS", 0.0)
    with otlp_receiver() as receiver:
        way = to(receiver.url)
    lost, why = way.send([span()])
    assert lost == 1
    assert "refused" in why


def test_what_speaks_something_else_is_no_collector(
    to: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "GIVE_UP_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        way = to(f"http://127.0.0.1:{server.getsockname()[1]}")

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"\x1b[31m no HTTP\r\n\r\n")

        Timer(0, answer).start()
        lost, why = way.send([span()])
    assert lost == 1
    assert "\x1b" not in why


def test_who_is_in_a_hurry_tries_once(to: Callable[..., Collector]) -> None:
    with otlp_receiver() as receiver:
        receiver.refuse_with(503)
        way = to(receiver.url)
        way.hurry()
        assert way.send([span()]) == (1, "it answers 503 to /v1/traces")
        assert way.send([span()]) == (0, "")


def test_a_path_of_the_endpoint_is_kept(to: Callable[..., Collector]) -> None:
    with otlp_receiver() as receiver:
        to(f"{receiver.url}/otlp/").send([span()])
        assert receiver.requests[0][0] == "/otlp/v1/traces"


def test_the_standard_variables_of_the_environment_hold(to: Callable[..., Collector]) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b, authorization=Basic%201 ,,nonsense,=x",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,k8s.pod.name=pod-1",
    }
    with otlp_receiver() as receiver:
        to(receiver.url, environment).send([span()])
        environment["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = "x-tenant=c"
        to(receiver.url, environment).send([span()])
        environment["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = "authorization=from-outside"
        to(receiver.url, environment, "Bearer mine").send([span()])
        (_, first), (_, second), (_, third) = receiver.requests
        resource = receiver.spans[0].resource
    assert (first["x-tenant"], first["authorization"]) == ("a b", "Basic 1")
    assert (second["x-tenant"], second.get("authorization")) == ("c", None)
    assert third["authorization"] == "Bearer mine"
    assert (resource["service.name"], resource["k8s.pod.name"]) == ("service", "pod-1")


def test_authorities_come_from_the_environment_and_a_missing_file_is_a_failure(
    to: Callable[..., Collector],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector_module, "GIVE_UP_SECONDS", 0.0)
    way = to("https://127.0.0.1:1", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such.pem"})
    lost, why = way.send([span()])
    assert lost == 1
    assert "No such file" in why
