from __future__ import annotations

from prefix_router.analyze.measured import Measured
from prefix_router.analyze.record import RecordedRequest
from prefix_router.routing.chain import PromptEnd


def recorded(
    tokens: int, counted: int | None = None, cached: int | None = None, ttft: float | None = None
) -> RecordedRequest:
    return RecordedRequest(
        [], tokens, PromptEnd(1, 1), counted_tokens=counted, cached_tokens=cached, first_token_seconds=ttft
    )


def test_hits_and_tokens_are_of_requests_that_say_both() -> None:
    measured = Measured()
    for request in (
        recorded(100, 120, 60),
        recorded(100, 100, 0),
        recorded(100, 999),
        recorded(100, None, 9),
    ):
        measured.add(request)
    assert measured.hit_rate == 60 / 220
    assert measured.tokens_per_estimate == 1.1


def test_first_tokens_are_summed_up_in_milliseconds() -> None:
    measured = Measured()
    for milliseconds in range(1, 101):
        measured.add(recorded(1, ttft=milliseconds / 1e3))
    assert measured.ttft_ms() == {"p50": 50.0, "p90": 90.0, "p99": 99.0}


def test_nothing_is_known_of_requests_that_say_nothing() -> None:
    measured = Measured()
    measured.add(recorded(100))
    assert measured.hit_rate is None
    assert measured.tokens_per_estimate is None
    assert measured.ttft_ms() == {"p50": None, "p90": None, "p99": None}
