from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from prefix_router.proxy.lease import Lease
from prefix_router.routing.capacity import below_threshold, load
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Member
from prefix_router.workers.shared_counts import SUPERVISOR, SharedCounts, SharedInFlight

ONE, TWO = 1, 2


@pytest.fixture
def counts() -> Iterator[SharedCounts]:
    made = SharedCounts.create(workers=2, capacity=8)
    yield made
    made.close()


def member(counter: SharedInFlight, state: BackendState = BackendState.HEALTHY) -> Member:
    return Member(Backend(BackendName("a"), "http://a"), state, counter)


def test_a_lease_of_one_process_is_seen_by_all(counts: SharedCounts) -> None:
    lease = Lease(member(counts.in_flight(3, ONE)))
    for process in (SUPERVISOR, ONE, TWO):
        assert counts.in_flight(3, process).count == 1
    lease.release()
    assert counts.in_flight(3, TWO).count == 0


def test_leases_of_all_processes_add_up(counts: SharedCounts) -> None:
    one, two = counts.in_flight(0, ONE), counts.in_flight(0, TWO)
    one.take()
    two.take()
    two.take()
    assert one.count == two.count == 3
    one.give()
    assert two.count == 2


def test_neighbouring_backends_do_not_touch_each_other(counts: SharedCounts) -> None:
    for _ in range(5):
        counts.in_flight(4, TWO).take()
    assert [counts.in_flight(slot, ONE).count for slot in (3, 4, 5)] == [0, 5, 0]
    assert [counts.in_flight(slot, ONE).trials for slot in range(8)] == [0] * 8


def test_the_decision_of_one_process_sees_the_leases_of_the_other(counts: SharedCounts) -> None:
    here, there = member(counts.in_flight(1, ONE)), counts.in_flight(1, TWO)
    there.take()
    assert below_threshold(here, 2)
    there.take()
    assert not below_threshold(here, 2)
    assert load(here) == 2


def test_a_recovering_backend_gets_one_trial_of_all_processes(counts: SharedCounts) -> None:
    here = member(counts.in_flight(1, ONE), BackendState.HALF_OPEN)
    there = member(counts.in_flight(1, TWO), BackendState.HALF_OPEN)
    lease = Lease(here)
    assert not there.admits()
    lease.prove()
    assert there.admits()
    assert there.in_flight.count == 1
    lease.release()


def test_what_a_dead_process_held_is_given_back_and_nothing_else(counts: SharedCounts) -> None:
    for slot in (0, 3, 7):
        counts.in_flight(slot, ONE).take()
        counts.in_flight(slot, ONE).begin_trial()
    counts.in_flight(3, TWO).take()
    assert counts.reclaim(ONE) == 3
    assert [counts.in_flight(slot, TWO).count for slot in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [counts.in_flight(slot, TWO).trials for slot in range(8)] == [0] * 8


def test_whoever_has_the_descriptor_counts_in_the_same_memory(counts: SharedCounts) -> None:
    counts.in_flight(2, ONE).take()
    other = SharedCounts(os.dup(counts.descriptor), workers=2, capacity=8)
    other.in_flight(2, TWO).take()
    assert counts.in_flight(2, ONE).count == other.in_flight(2, TWO).count == 2
    other.close()


def test_counters_work_on_after_the_descriptor_is_closed() -> None:
    counts = SharedCounts.create(workers=1, capacity=1)
    counter = counts.in_flight(0, ONE)
    counts.close()
    counts.close()
    counter.take()
    assert (counter.count, repr(counter)) == (1, "InFlight(1)")


def test_a_row_is_in_use_while_anything_is_held(counts: SharedCounts) -> None:
    counter = counts.in_flight(5, TWO)
    assert not counts.in_use(5)
    counter.begin_trial()
    assert counts.in_use(5)
    counter.end_trial()
    counter.take()
    assert counts.in_use(5)


def test_a_sum_cannot_be_assigned(counts: SharedCounts) -> None:
    with pytest.raises(AttributeError):
        counts.in_flight(0, ONE).count = 3  # type: ignore[misc]


@pytest.mark.parametrize(("slot", "process"), [(-1, 0), (8, 0), (0, -1), (0, 3)])
def test_there_is_no_cell_outside_the_matrix(counts: SharedCounts, slot: int, process: int) -> None:
    with pytest.raises(IndexError):
        counts.in_flight(slot, process)


@pytest.mark.parametrize(("workers", "capacity"), [(0, 1), (1, 0)])
def test_a_matrix_has_at_least_one_cell(workers: int, capacity: int) -> None:
    with pytest.raises(ValueError, match="expected workers and slots"):
        SharedCounts.create(workers, capacity)
