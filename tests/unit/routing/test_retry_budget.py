from __future__ import annotations

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.routing.retry import Failure
from prefix_router.routing.retry_budget import CHARGED, WINDOW_SECONDS, RetryAllowance, RetryBudget


def taken(budget: RetryBudget, wanted: int, now: float) -> int:
    return sum(budget.take(now) for _ in range(wanted))


def counting(budget: RetryBudget, requests: int, now: float) -> None:
    for _ in range(requests):
        budget.count_request(now)


def test_a_share_of_the_requests_may_be_tried_again() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0.2, min_per_second=0))
    counting(budget, 100, now=5.0)
    assert taken(budget, 50, now=5.5) == 20


def test_few_requests_may_use_the_floor_instead_of_their_share() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0.2, min_per_second=2))
    counting(budget, 10, now=1.0)
    assert taken(budget, 50, now=1.0) == 2 * WINDOW_SECONDS


def test_a_floor_below_one_in_a_second_counts_over_the_window() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0, min_per_second=0.1))
    assert taken(budget, 5, now=1.0) == 1


def test_nothing_is_allowed_when_both_are_zero() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0, min_per_second=0))
    counting(budget, 100, now=1.0)
    assert taken(budget, 5, now=1.0) == 0


def test_the_budget_comes_back_as_retries_leave_the_window() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0, min_per_second=1))
    assert taken(budget, 99, now=100.0) == 10
    assert taken(budget, 99, now=109.9) == 0
    assert taken(budget, 99, now=110.0) == 10


def test_requests_stop_counting_as_they_leave_the_window() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0.5, min_per_second=0))
    counting(budget, 10, now=3.9)
    counting(budget, 4, now=4.0)
    assert taken(budget, 99, now=13.0) == 2


def test_a_denied_retry_costs_nothing() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0.5, min_per_second=0))
    counting(budget, 2, now=1.0)
    assert taken(budget, 9, now=1.0) == 1
    counting(budget, 2, now=1.0)
    assert taken(budget, 9, now=1.0) == 1


def test_a_long_pause_empties_the_window() -> None:
    budget = RetryBudget(RetryAllowance(ratio=1, min_per_second=0))
    counting(budget, 7, now=1.0)
    assert taken(budget, 9, now=1e6) == 0


def test_a_clock_that_goes_back_frees_nothing() -> None:
    budget = RetryBudget(RetryAllowance(ratio=0, min_per_second=1))
    assert taken(budget, 99, now=100.0) == 10
    assert taken(budget, 99, now=50.0) == 0


def test_another_allowance_holds_at_once_and_forgets_nothing() -> None:
    budget = RetryBudget(RetryAllowance(ratio=1, min_per_second=0))
    counting(budget, 10, now=1.0)
    assert taken(budget, 4, now=1.0) == 4
    budget.allowance = RetryAllowance(ratio=0.5, min_per_second=0)
    assert taken(budget, 9, now=1.0) == 1


@pytest.mark.parametrize("failure", Failure)
def test_charged_is_what_a_backend_has_had_to_look_at(failure: Failure) -> None:
    looked_at = {Failure.RESET, Failure.BACK_PRESSURE}
    assert (failure in CHARGED) == (failure in looked_at)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.floats(0, 4))),
    ratio=st.sampled_from([0.0, 0.1, 0.2, 1.0, 3.0]),
    floor_per_second=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
)
def test_the_budget_is_never_exceeded_and_never_kept_back(
    steps: list[tuple[bool, float]], ratio: float, floor_per_second: float
) -> None:
    """Against a model that remembers everything: the window is the running second and the nine before it."""
    budget = RetryBudget(RetryAllowance(ratio, floor_per_second))
    requests: list[int] = []
    retries: list[int] = []
    now = 1000.0
    for is_request, pause in steps:
        now += pause
        if is_request:
            budget.count_request(now)
            requests.append(floor(now))
            continue
        began = floor(now) - WINDOW_SECONDS
        allowed = max(floor_per_second * WINDOW_SECONDS, ratio * sum(second > began for second in requests))
        used = sum(second > began for second in retries)
        assert budget.take(now) == (used + 1 <= allowed)
        if used + 1 <= allowed:
            retries.append(floor(now))
