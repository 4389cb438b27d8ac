from __future__ import annotations

import pytest

from prefix_router.routing.capacity import below_threshold, clearly_less_loaded, least_loaded, load
from tests.support.fleets import member


def test_load_is_in_flight_per_share_of_weight() -> None:
    assert load(member("a", 6, weight=3)) == 2
    assert load(member("a", 1, weight=3)) == load(member("b", 2, weight=6))


@pytest.mark.parametrize(
    ("in_flight", "weight", "below"), [(9, 1, True), (10, 1, False), (29, 3, True), (30, 3, False)]
)
def test_threshold_counts_per_share_of_weight(in_flight: int, weight: int, below: bool) -> None:
    assert below_threshold(member("a", in_flight, weight=weight), 10) is below


def test_least_loaded_are_all_that_share_the_lowest_load_in_the_order_given() -> None:
    members = [member("a", 2), member("b", 1), member("c", 4, weight=4), member("d", 3), member("e", 1)]
    assert [tied.name for tied in least_loaded(members)] == ["b", "c", "e"]


def test_of_nobody_nobody_is_least_loaded() -> None:
    assert least_loaded([]) == []


def clear(hot: int, others: list[int]) -> bool:
    members = [member(f"other-{index}", count) for index, count in enumerate(others)]
    return clearly_less_loaded(least_loaded(members)[0], member("hot", hot), members)


def test_idle_fleet_is_clearly_less_loaded_than_a_backend_with_one_request() -> None:
    assert clear(1, [0, 0, 0])


def test_hot_backend_carries_twice_the_mean_of_the_others_and_one_request_more() -> None:
    assert clear(21, [10, 10, 10])
    assert clear(21, [20, 10, 0])
    assert not clear(20, [10, 10, 10])
    assert clear(3, [1])
    assert not clear(2, [1])


def test_one_idle_backend_in_a_busy_fleet_is_no_reason_to_leave() -> None:
    assert not clear(10, [9, 9, 9, 9, 9, 0])


def test_moving_the_request_never_makes_the_candidate_the_busier_one() -> None:
    for hot_weight in (1, 2, 5):
        for weight in (1, 2, 5):
            for hot_count in range(12):
                for count in range(12):
                    hot, other = (
                        member("hot", hot_count, weight=hot_weight),
                        member("b", count, weight=weight),
                    )
                    if clearly_less_loaded(other, hot, [other]):
                        assert (count + 1) / weight <= load(hot)


def test_comparison_is_per_share_of_weight() -> None:
    # 9 ÷ 2 shares is at least twice 10 ÷ 5 shares and the quarter that one request is to the large one.
    hot, small, large = member("hot", 9, weight=2), member("small", 3), member("large", 7, weight=4)
    assert clearly_less_loaded(large, hot, [small, large])
    assert not clearly_less_loaded(small, hot, [small, large])
    hot.in_flight.count = 8
    assert not clearly_less_loaded(large, hot, [small, large])
