from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe.events import RequestRecord
from prefix_router.observe.expectation import SURPRISE_TOKENS, Comparison, Surprise, compare


def compared(event: RequestRecord, **changes: Any) -> Comparison | None:
    values = {"prompt_length": 1000, "expected_tokens": 800, "prompt_tokens": 1000, "cached_tokens": 640}
    return compare(replace(event, **(values | changes)))


def test_an_expectation_is_scaled_to_the_length_that_the_engine_reports(
    request_finished: RequestRecord,
) -> None:
    assert compared(request_finished) == (800, 640)
    assert compared(request_finished, prompt_tokens=1500) == (1200, 640)
    assert compared(request_finished, prompt_tokens=3, cached_tokens=0) == (2, 0)


def test_no_more_is_expected_than_there_is(request_finished: RequestRecord) -> None:
    assert compared(request_finished, expected_tokens=1100) == (1000, 640)


@pytest.mark.parametrize(
    "missing",
    [
        {"expected_tokens": None},
        {"prompt_length": None},
        {"prompt_length": 0},
        {"prompt_tokens": None},
        {"cached_tokens": None},
    ],
)
def test_without_all_of_the_counts_nothing_is_compared(
    request_finished: RequestRecord, missing: dict[str, None]
) -> None:
    assert compared(request_finished, **missing) is None


def test_nothing_expected_and_nothing_found_is_a_comparison_too(request_finished: RequestRecord) -> None:
    assert compared(request_finished, expected_tokens=0, cached_tokens=0) == (0, 0)


@pytest.mark.parametrize(
    ("expected", "observed", "surprise"),
    [
        (1000, 1000, None),
        (1000, 1001 - SURPRISE_TOKENS, None),
        (1000, 1000 - SURPRISE_TOKENS, Surprise.COLD),
        (1000, 0, Surprise.COLD),
        (0, SURPRISE_TOKENS - 1, None),
        (0, SURPRISE_TOKENS, Surprise.WARM),
    ],
)
def test_a_difference_is_a_surprise_from_a_certain_size_on(
    expected: int, observed: int, surprise: Surprise | None
) -> None:
    assert Comparison(expected, observed).surprise is surprise
