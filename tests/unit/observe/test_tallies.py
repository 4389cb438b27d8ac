from __future__ import annotations

import pytest

from prefix_router.analyze import sharing
from prefix_router.observe.tallies import (
    SHARED_PREFIXES,
    BackendTally,
    Histogram,
    ReasonTally,
    shared_prefix_bucket,
)


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("0.1", 2), ("1.0", 4), ("+Inf", 5)]
    assert histogram.count == 5
    assert histogram.sum == 0.05 + 0.1 + 0.5 + 1.0 + 7.0


def test_an_empty_histogram_has_all_its_buckets() -> None:
    assert Histogram((0.1,)).cumulative() == [("0.1", 0), ("+Inf", 0)]


def test_tallies_share_nothing() -> None:
    first, second = BackendTally(), BackendTally()
    first.requests["affinity", "2xx"] += 1
    assert not second.requests
    one, other = ReasonTally(), ReasonTally()
    one.first_byte.observe(1.0)
    assert (one.first_token.count, other.first_byte.count) == (0, 0)
    one.shared_prefixes[0].prompt += 1
    assert (one.shared_prefixes[1].prompt, other.shared_prefixes[0].prompt) == (0, 0)


@pytest.mark.parametrize(
    ("shared_tokens", "label"),
    [
        (0, "nothing"),
        (1, "under 256"),
        (255, "under 256"),
        (256, "256 to 1k"),
        (1023, "256 to 1k"),
        (1024, "1k to 4k"),
        (4095, "1k to 4k"),
        (4096, "4k to 16k"),
        (16_383, "4k to 16k"),
        (16_384, "over 16k"),
        (10**9, "over 16k"),
    ],
)
def test_a_shared_prefix_is_in_the_bucket_that_begins_at_or_below_it(shared_tokens: int, label: str) -> None:
    assert SHARED_PREFIXES[shared_prefix_bucket(shared_tokens)][1] == label


def test_an_analysis_has_the_same_buckets() -> None:
    assert sharing.ROWS == SHARED_PREFIXES
