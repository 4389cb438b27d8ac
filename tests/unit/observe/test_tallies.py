from __future__ import annotations

from prefix_router.observe.tallies import BackendTally, Histogram, ReasonTally


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
