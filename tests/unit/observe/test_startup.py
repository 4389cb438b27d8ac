from __future__ import annotations

import logging

import pytest

from prefix_router.observe.events import RequestRecord
from prefix_router.observe.startup import StartupPhase, Startups
from prefix_router.routing.fleet import BackendName

A, B = BackendName("a"), BackendName("b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def startups(clock: Clock) -> Startups:
    startups = Startups(clock)
    startups.discovered([A])
    return startups


def answered(backend: BackendName, status: int = 200, **fields: float) -> RequestRecord:
    return RequestRecord("id", "POST", "/v1/completions", backend=backend, status=status, **fields)  # type: ignore[arg-type]


def test_each_phase_is_noted_once_in_seconds_since_the_discovery(startups: Startups, clock: Clock) -> None:
    for phase in (StartupPhase.REACHABLE, StartupPhase.HEALTHY, StartupPhase.WARMED, StartupPhase.REACHABLE):
        clock.now += 1.5
        startups.reached(A, phase)
    assert startups.document(A) == {"discovered": 0, "reachable": 1.5, "healthy": 3.0, "warmed": 4.5}


def test_the_first_good_answer_completes_the_record_and_is_logged(
    startups: Startups, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock.now += 10
    startups.request_finished(answered(A, 503, duration_seconds=1.0, first_byte_seconds=0.5))
    assert startups.document(A) == {"discovered": 0}
    startups.request_finished(
        answered(A, duration_seconds=4.0, first_byte_seconds=1.0, first_token_seconds=2.0)
    )
    startups.request_finished(answered(A, duration_seconds=0.0, first_byte_seconds=0.0))
    assert startups.document(A) == {"discovered": 0, "first_request": 6.0, "first_token": 8.0}
    assert not startups.open
    assert [record.getMessage() for record in caplog.records] == [
        "backend a has started: discovered 0.000 s, first_request 6.000 s, first_token 8.000 s"
    ]


def test_an_answer_that_is_no_stream_counts_from_its_first_byte(startups: Startups, clock: Clock) -> None:
    clock.now += 5
    startups.request_finished(answered(A, duration_seconds=2.0, first_byte_seconds=1.0))
    assert startups.seconds()[A][StartupPhase.FIRST_TOKEN] == 4.0


def test_who_answered_as_the_last_resort_is_still_warm_later(startups: Startups, clock: Clock) -> None:
    startups.request_finished(answered(A, duration_seconds=0.0, first_byte_seconds=0.0))
    clock.now += 7
    startups.reached(A, StartupPhase.WARMED)
    assert startups.seconds()[A][StartupPhase.WARMED] == 7.0


def test_a_record_goes_with_its_backend_and_begins_anew_with_it(startups: Startups, clock: Clock) -> None:
    startups.reached(A, StartupPhase.REACHABLE)
    startups.set_backends([B])
    assert startups.document(A) is None
    assert not startups.open
    startups.discovered([A])
    assert startups.document(A) == {"discovered": 0}


def test_who_was_there_from_the_start_has_no_record(startups: Startups) -> None:
    startups.reached(B, StartupPhase.HEALTHY)
    startups.request_finished(answered(B, duration_seconds=1.0))
    assert startups.document(B) is None
    assert startups.open


def test_a_request_that_is_older_than_the_record_never_gives_a_negative_time(startups: Startups) -> None:
    startups.request_finished(answered(A, duration_seconds=60.0, first_byte_seconds=1.0))
    assert startups.document(A) == {"discovered": 0, "first_request": 0, "first_token": 0}
