from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from prefix_router.observe.cold_spells import BEGIN_REQUESTS, REPEAT_SECONDS, WINDOW_REQUESTS
from prefix_router.observe.cold_warning import ColdWarning
from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
from prefix_router.routing.fleet import BackendName, BackendState

A = BackendName("a")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warning(clock: Clock) -> ColdWarning:
    made = ColdWarning(clock)
    made.set_backends([A])
    return made


@pytest.fixture
def warm(request_finished: RequestRecord) -> RequestRecord:
    return replace(
        request_finished, prompt_length=1000, expected_tokens=900, prompt_tokens=2000, cached_tokens=1792
    )


@pytest.fixture
def cold(warm: RequestRecord) -> RequestRecord:
    return replace(warm, cached_tokens=0)


def finish(warning: ColdWarning, event: RequestRecord, times: int) -> None:
    for _ in range(times):
        warning.request_finished(event)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, dict[str, object]]]:
    return [(line.levelno, line.getMessage(), line.__dict__["fields"]) for line in caplog.records]


def test_a_spell_is_a_warning_with_its_counts_and_its_end_an_information(
    warning: ColdWarning, warm: RequestRecord, cold: RequestRecord, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        finish(warning, warm, 50)
        assert lines(caplog) == []
        finish(warning, cold, WINDOW_REQUESTS)
        assert lines(caplog) == [
            (
                logging.WARNING,
                "backend should be warm but answers cold",
                {"backend": "a", "cold_requests": BEGIN_REQUESTS, "of_requests": WINDOW_REQUESTS},
            )
        ]
        caplog.clear()
        finish(warning, warm, WINDOW_REQUESTS)
        [(level, message, _)] = lines(caplog)
        assert (level, message) == (logging.INFO, "backend no longer answers cold")


def test_the_clock_says_when_it_may_be_repeated(
    warning: ColdWarning, cold: RequestRecord, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    finish(warning, cold, 100)
    assert len(caplog.records) == 1
    clock.now += REPEAT_SECONDS
    finish(warning, cold, 100)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("unknown", ["expected_tokens", "prompt_length", "cached_tokens", "backend"])
def test_a_request_without_the_values_is_no_evidence(
    warning: ColdWarning, cold: RequestRecord, unknown: str, caplog: pytest.LogCaptureFixture
) -> None:
    finish(warning, replace(cold, **{unknown: None}), 100)
    assert lines(caplog) == []


def test_what_was_seen_of_an_engine_goes_down_with_it(
    warning: ColdWarning, cold: RequestRecord, caplog: pytest.LogCaptureFixture
) -> None:
    finish(warning, cold, BEGIN_REQUESTS - 1)
    warning.backend_changed(BackendChanged(A, BackendState.HEALTHY, BackendState.EJECTED, "x"))
    warning.backend_changed(BackendChanged(A, BackendState.EJECTED, BackendState.DOWN, "x"))
    warning.engine_sampled(EngineSample(A))
    finish(warning, cold, BEGIN_REQUESTS - 1)
    assert lines(caplog) == []
    warning.backend_changed(BackendChanged(A, BackendState.DOWN, BackendState.HEALTHY, "x"))
    finish(warning, cold, 1)
    assert len(caplog.records) == 1
