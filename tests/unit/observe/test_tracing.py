"""What waits for a collector, and what becomes of it. The way there is played."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe import tracing as tracing_module
from prefix_router.observe.events import RequestRecord, TraceRecord
from prefix_router.observe.spans import Span
from prefix_router.observe.tracing import SpanSender, TracingOptions

OPTIONS = TracingOptions("http://c:4318", "service", "Bearer hush")
SOON = 0.001


class PlayedWay:
    """Takes batches, all of them unless it is told otherwise; while `open` is not set it stands still."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.losing = 0
        self.open = Event()
        self.open.set()
        self.standing = Event()
        self.closed = False

    def send(self, spans: Sequence[Span]) -> tuple[int, str]:
        self.standing.set()
        self.open.wait()
        self.batches.append([span.span_id for span in spans])
        return min(self.losing, len(spans)), "because"

    def hurry(self) -> None:
        self.open.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def way() -> PlayedWay:
    return PlayedWay()


@pytest.fixture
def sender(way: PlayedWay) -> Iterator[SpanSender]:
    sender = SpanSender(lambda _: way, queue_requests=10, batch_seconds=SOON)
    yield sender
    way.open.set()
    sender.close()


@pytest.fixture
def traced(request_finished: RequestRecord) -> Callable[..., RequestRecord]:
    def traced(span_id: int = 1, **changes: Any) -> RequestRecord:
        trace = TraceRecord("a" * 32, span_id, None, 1, "", changes.pop("sampled", True), 0)
        return replace(request_finished, **{"trace": trace, **changes})

    return traced


def test_what_was_taken_before_the_end_is_sent(
    sender: SpanSender, way: PlayedWay, traced: Callable[..., RequestRecord]
) -> None:
    sender.begin(OPTIONS)
    for number in range(5):
        sender.request_finished(traced(number))
    sender.close()
    assert sorted(chain(*way.batches)) == list(range(5))
    assert (sender.sent, sender.dropped) == (5, 0)
    assert way.closed


def test_only_sampled_requests_between_begin_and_end_are_sent(
    sender: SpanSender, way: PlayedWay, traced: Callable[..., RequestRecord]
) -> None:
    sender.request_finished(traced())
    sender.begin(OPTIONS)
    sender.request_finished(traced(sampled=False))
    sender.request_finished(traced(trace=None))
    sender.end()
    sender.request_finished(traced())
    sender.close()
    assert way.batches == []


def test_a_collector_that_stands_still_fills_a_bounded_queue_and_no_more(
    sender: SpanSender, way: PlayedWay, traced: Callable[..., RequestRecord]
) -> None:
    way.open.clear()
    sender.begin(OPTIONS)
    sender.request_finished(traced(0))
    assert way.standing.wait(5)
    for number in range(1, 31):
        sender.request_finished(traced(number))
    assert sender.dropped == 20
    way.open.set()
    sender.close()
    assert list(chain(*way.batches)) == list(range(11))
    assert (sender.sent, sender.dropped) == (11, 20)


def test_batches_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
    sender: SpanSender,
    way: PlayedWay,
    traced: Callable[..., RequestRecord],
) -> None:
    monkeypatch.setattr(tracing_module, "BATCH_REQUESTS", 4)
    way.open.clear()
    sender.begin(OPTIONS)
    sender.request_finished(traced(0))
    assert way.standing.wait(5)
    for number in range(1, 10):
        sender.request_finished(traced(number))
    way.open.set()
    sender.close()
    assert list(map(len, way.batches)) == [1, 4, 4, 1]


def test_a_full_queue_wakes_the_thread_before_its_time(
    monkeypatch: pytest.MonkeyPatch, way: PlayedWay, traced: Callable[..., RequestRecord]
) -> None:
    monkeypatch.setattr(tracing_module, "_WAKE_AT", 3)
    sender = SpanSender(lambda _: way, batch_seconds=3600)
    sender.begin(OPTIONS)
    for number in range(4):
        sender.request_finished(traced(number))
    assert way.standing.wait(5)
    sender.close()


def test_failure_and_recovery_are_said_once_each(
    caplog: pytest.LogCaptureFixture,
    sender: SpanSender,
    way: PlayedWay,
    traced: Callable[..., RequestRecord],
) -> None:
    caplog.set_level(logging.INFO, "prefix_router.observe.tracing")
    way.losing = 99
    sender.begin(OPTIONS)

    def send(number: int) -> None:
        before = len(way.batches)
        sender.request_finished(traced(number))
        while len(way.batches) == before:
            way.standing.wait(SOON)

    for number in range(3):
        send(number)
    way.losing = 0
    for number in range(3):
        send(number)
    sender.close()
    assert (sender.sent, sender.dropped) == (3, 3)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "sending spans to http://c:4318"),
        ("WARNING", "http://c:4318 takes no spans, they are lost: because; not said again until it does"),
        ("INFO", "http://c:4318 takes spans again; 3 were lost"),
    ]


def test_the_end_does_not_wait_for_a_collector_that_stands_still(
    sender: SpanSender, way: PlayedWay, traced: Callable[..., RequestRecord]
) -> None:
    way.open.clear()
    sender.begin(OPTIONS)
    sender.request_finished(traced(0))
    assert way.standing.wait(5)
    for number in range(1, 4):
        sender.request_finished(traced(number))
    sender.close(timeout_seconds=0)  # `hurry` lets the one go that is being sent
    assert way.batches == [[0]]
    assert (sender.sent, sender.dropped) == (1, 3)


def test_another_collector_takes_over_and_nothing_is_counted_twice(
    traced: Callable[..., RequestRecord],
) -> None:
    ways = [PlayedWay(), PlayedWay()]
    order = iter(ways)
    sender = SpanSender(lambda _: next(order), batch_seconds=SOON)
    for number in range(2):
        sender.begin(OPTIONS)
        sender.request_finished(traced(number))
    sender.close()
    sender.end()
    assert [way.batches for way in ways] == [[[0]], [[1]]]
    assert (sender.sent, sender.dropped) == (2, 0)


def test_a_mistake_of_ours_is_said_and_costs_no_request(
    caplog: pytest.LogCaptureFixture, traced: Callable[..., RequestRecord]
) -> None:
    def broken(_: TracingOptions) -> PlayedWay:
        raise RuntimeError("ours")

    sender = SpanSender(broken, batch_seconds=SOON)
    sender.begin(OPTIONS)
    sender.request_finished(traced())
    sender.close()
    assert "none are sent any more" in caplog.text
    assert sender.sent == 0


def test_the_login_is_not_in_what_is_printed() -> None:
    assert "hush" not in repr(OPTIONS)
