from __future__ import annotations

from collections.abc import Iterator

import pytest

from prefix_router.workers.shared_counts import SharedCounts
from prefix_router.workers.slots import BackendSlots, SlotsExhaustedError


@pytest.fixture
def slots() -> Iterator[BackendSlots]:
    counts = SharedCounts.create(workers=1, capacity=2)
    yield BackendSlots(counts)
    counts.close()


def test_backends_count_in_rows_of_their_own(slots: BackendSlots) -> None:
    assert slots.in_flight().slot != slots.in_flight().slot


def test_more_backends_than_rows_are_refused_with_the_numbers(slots: BackendSlots) -> None:
    slots.in_flight()
    slots.published(1, [slots.in_flight().slot])
    with pytest.raises(SlotsExhaustedError, match=r"1 backends and 1 that have left .* more than the 2"):
        slots.in_flight()


def test_a_row_is_free_again_once_every_worker_knows_that_its_backend_has_left(slots: BackendSlots) -> None:
    stays, leaves = slots.in_flight(), slots.in_flight()
    slots.published(7, [stays.slot])
    slots.confirmed(6)
    with pytest.raises(SlotsExhaustedError):
        slots.in_flight()
    slots.confirmed(7)
    assert slots.in_flight().slot == leaves.slot


def test_a_row_is_not_free_while_a_request_to_its_old_backend_runs(slots: BackendSlots) -> None:
    stays, leaves = slots.in_flight(), slots.in_flight()
    running = slots.counts.in_flight(leaves.slot, 1)
    running.take()
    slots.published(1, [stays.slot])
    slots.confirmed(1)
    with pytest.raises(SlotsExhaustedError):
        slots.in_flight()
    running.give()
    again = slots.in_flight()
    assert (again.slot, again.count) == (leaves.slot, 0)


def test_a_row_that_was_taken_again_is_not_taken_twice(slots: BackendSlots) -> None:
    first, second = slots.in_flight(), slots.in_flight()
    slots.published(1, [first.slot])
    slots.confirmed(1)
    slots.in_flight()
    slots.published(2, [first.slot, second.slot])
    slots.confirmed(2)
    with pytest.raises(SlotsExhaustedError):
        slots.in_flight()


def test_a_row_for_a_backend_that_never_appeared_comes_back(slots: BackendSlots) -> None:
    first = slots.in_flight()
    slots.in_flight()  # and then the change was given up
    slots.published(1, [first.slot])
    slots.confirmed(1)
    slots.in_flight()
