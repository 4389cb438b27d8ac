"""What a record becomes as spans: whatever a running router cannot easily be brought to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe.events import AttemptRecord, Outcome, RequestRecord, RetryCause, TraceRecord
from prefix_router.observe.spans import SpanKind, spans_of
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName

SECOND = 10**9


def attempt(span_id: int = 7, **changes: Any) -> AttemptRecord:
    url = changes.pop("url", "http://10.0.0.1:8000")
    return AttemptRecord(
        span_id,
        BackendName("a"),
        url,
        Reason.AFFINITY,
        0.5,
        **{"ended_seconds": 4.0, "status": 200, **changes},
    )


def trace(*attempts: AttemptRecord, **changes: Any) -> TraceRecord:
    return TraceRecord(
        **{
            "trace_id": "0" * 31 + "a",
            "span_id": 5,
            "parent_id": None,
            "flags": 1,
            "state": "",
            "sampled": True,
            "began_unix_ns": 100 * SECOND,
            "attempts": list(attempts),
            **changes,
        }
    )


@pytest.fixture
def traced(request_finished: RequestRecord) -> Callable[..., RequestRecord]:
    def traced(*attempts: AttemptRecord, **changes: Any) -> RequestRecord:
        return replace(request_finished, **{"trace": trace(*attempts), **changes})

    return traced


def test_what_is_not_traced_or_not_sampled_has_no_span(traced: Callable[..., RequestRecord]) -> None:
    assert spans_of(traced(trace=None)) == []
    assert spans_of(traced(trace=trace(attempt(), sampled=False))) == []


def test_ids_and_times(traced: Callable[..., RequestRecord]) -> None:
    request, tried = spans_of(traced(attempt()))
    assert (request.kind, request.trace_id, request.span_id, request.parent_id) == (
        SpanKind.SERVER,
        10,
        5,
        None,
    )
    assert (tried.kind, tried.trace_id, tried.span_id, tried.parent_id) == (SpanKind.CLIENT, 10, 7, 5)
    assert (request.began_ns, request.ended_ns) == (100 * SECOND, 104 * SECOND)
    assert (tried.began_ns, tried.ended_ns) == (100 * SECOND + SECOND // 2, 104 * SECOND)
    assert request.events == (
        ("prefix_router.first_byte", 100 * SECOND + 300_000_000),
        ("prefix_router.first_token", 100 * SECOND + 400_000_000),
    )


def test_where_requests_waited_and_what_was_expected(traced: Callable[..., RequestRecord]) -> None:
    (request,) = spans_of(
        traced(
            queue_seconds=1.5,
            retry_denied=True,
            retry_causes=(RetryCause.RESET, RetryCause.CONNECT),
            shared_tokens=10,
            expected_tokens=9,
            prompt_length=12,
        ),
        "https",
    )
    found = request.attributes
    assert found["prefix_router.queue_seconds"] == 1.5
    assert found["prefix_router.retry_denied"] is True
    assert found["prefix_router.retry_causes"] == ("reset", "connect")
    assert found["prefix_router.key"] == "000000000000beef"
    assert (found["prefix_router.shared_tokens"], found["prefix_router.expected_tokens"]) == (10, 9)
    assert found["url.scheme"] == "https"
    assert found["gen_ai.response.time_to_first_chunk"] == 0.4
    assert None not in found.values()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"status": 404}, None),
        ({"status": 429, "error_code": "queue_full", "outcome": Outcome.REJECTED}, None),
        ({"status": 500}, "500"),
        (
            {"status": 503, "error_code": "no_backend_available", "outcome": Outcome.REJECTED},
            "no_backend_available",
        ),
        ({"outcome": Outcome.UPSTREAM_TRUNCATED, "error_code": "idle_timeout"}, "idle_timeout"),
        ({"status": 0, "outcome": Outcome.CLIENT_DISCONNECTED}, None),
        ({"status": 500, "outcome": Outcome.CLIENT_DISCONNECTED}, None),
    ],
)
def test_what_is_an_error(
    traced: Callable[..., RequestRecord], changes: dict[str, Any], error: str | None
) -> None:
    (request,) = spans_of(traced(**changes))
    assert request.error == error
    assert request.attributes.get("error.type") == error


@pytest.mark.parametrize(
    ("api", "operation"),
    [("chat", "chat"), ("messages", "chat"), ("completions", "text_completion"), ("embeddings", "embeddings"),
     ("rerank", None), ("other", None)],
)  # fmt: skip
def test_operations_have_the_names_of_the_conventions(
    traced: Callable[..., RequestRecord], api: str, operation: str | None
) -> None:
    (request,) = spans_of(traced(api=api))
    assert request.attributes.get("gen_ai.operation.name") == operation


def test_names_are_of_a_closed_set_and_texts_of_a_bounded_length(
    traced: Callable[..., RequestRecord],
) -> None:
    record = traced(attempt(), path="/" + "x" * 9999, method="M" * 999, model="\ud800" + "m" * 999)
    request, tried = spans_of(record)
    assert request.name == tried.name == "HTTP"
    assert len(str(request.attributes["url.path"])) == 256
    assert len(str(request.attributes["http.request.method_original"])) == 128
    assert len(str(request.attributes["gen_ai.request.model"])) == 128
    for span in (request, tried):
        str(span.attributes).encode()  # half of a surrogate pair could not be


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("http://h", "h", 80), ("https://h", "h", 443), ("http://[::1]:1/p", "::1", 1)],
)
def test_where_an_attempt_went(traced: Callable[..., RequestRecord], url: str, host: str, port: int) -> None:
    _, tried = spans_of(traced(attempt(url=url)))
    assert (tried.attributes["server.address"], tried.attributes["server.port"]) == (host, port)
    assert tried.attributes["url.full"] == f"{url}/v1/chat/completions"
