from __future__ import annotations

import asyncio

import pytest

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.lease import Lease
from prefix_router.routing.fleet import Backend, BackendName, BackendState, InFlight, Member
from tests.support.waiting import until


def member(in_flight: InFlight, state: BackendState = BackendState.HEALTHY) -> Member:
    return Member(Backend(BackendName("a"), "http://a"), state, in_flight)


def test_a_lease_counts_from_its_making_to_the_end_of_its_block() -> None:
    in_flight = InFlight()
    with Lease(member(in_flight)):
        assert in_flight.count == 1
        with Lease(member(in_flight)):
            assert in_flight.count == 2
    assert in_flight.count == 0


def test_a_lease_is_given_back_once_however_often_it_is_released() -> None:
    in_flight = InFlight()
    with Lease(member(in_flight)) as lease:
        lease.release()
        lease.release()
        assert in_flight.count == 0
    assert in_flight.count == 0


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_a_lease_is_given_back_whatever_is_raised(error: type[BaseException]) -> None:
    in_flight = InFlight()
    with pytest.raises(error), Lease(member(in_flight)):
        raise error
    assert in_flight.count == 0


def test_a_lease_on_a_half_open_backend_is_a_trial_until_it_has_proven_something() -> None:
    in_flight = InFlight()
    doubtful = member(in_flight, BackendState.HALF_OPEN)
    with Lease(doubtful) as lease:
        assert not doubtful.admits()
        lease.prove()
        lease.prove()
        assert doubtful.admits()
        assert (in_flight.count, in_flight.trials) == (1, 0)
    assert (in_flight.count, in_flight.trials) == (0, 0)


def test_a_trial_that_proves_nothing_ends_with_its_lease() -> None:
    in_flight = InFlight()
    with Lease(member(in_flight, BackendState.HALF_OPEN)):
        pass
    assert (in_flight.count, in_flight.trials) == (0, 0)


def test_leases_from_before_are_no_trials() -> None:
    in_flight = InFlight()
    with Lease(member(in_flight)):
        assert member(in_flight, BackendState.HALF_OPEN).admits()


class Hearing:
    """A keeper that writes down what it hears, and what the counts are then."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def released(self, member: Member) -> None:
        self.heard.append(("released", member.in_flight.count, member.in_flight.trials))

    def proven(self, member: Member) -> None:
        self.heard.append(("proven", member.in_flight.count, member.in_flight.trials))


def test_the_keeper_hears_once_of_each_ending_when_the_count_is_right_already() -> None:
    keeper = Hearing()
    with Lease(member(InFlight(), BackendState.HALF_OPEN), keeper) as lease:
        lease.prove()
        lease.prove()
    lease.release()
    assert keeper.heard == [("proven", 1, 0), ("released", 0, 0)]


def test_the_keeper_hears_of_an_unproven_trial_only_that_the_lease_has_ended() -> None:
    keeper = Hearing()
    with Lease(member(InFlight(), BackendState.HALF_OPEN), keeper):
        pass
    assert keeper.heard == [("released", 0, 0)]


async def test_a_trial_without_an_answer_ends_after_its_time_and_the_lease_goes_on() -> None:
    in_flight = InFlight()
    doubtful = member(in_flight, BackendState.HALF_OPEN)
    with Lease(doubtful) as lease:
        lease.limit_trial(asyncio.get_running_loop(), 0.01)
        await until(lambda: not lease.on_trial)
        assert doubtful.admits()
        assert in_flight.count == 1
    assert in_flight.count == 0


async def test_the_limit_of_a_trial_goes_with_its_lease() -> None:
    in_flight = InFlight()
    with Lease(member(in_flight, BackendState.HALF_OPEN)) as lease:
        lease.limit_trial(asyncio.get_running_loop(), 0.01)
    with Lease(member(in_flight, BackendState.HALF_OPEN)) as second:
        await asyncio.sleep(0.03)
        assert second.on_trial
    assert (in_flight.count, in_flight.trials) == (0, 0)


class Diary:
    """A visit that writes down what it is told."""

    expected_tokens = 5

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def sent(self, now: float, *, streamed: bool) -> None:
        self.told.append(("sent", now, streamed))

    def first_token(self, now: float) -> None:
        self.told.append(("first token", now))

    def ended(self, now: float, cached: int | None, prompt: int | None, completion: int | None) -> None:
        self.told.append(("ended", now, cached, prompt, completion))


def test_a_visit_hears_when_it_begins_and_once_when_it_ends() -> None:
    diary, times = Diary(), iter([1.0, 2.0, 3.0])
    lease = Lease(member(InFlight()))
    lease.begin_visit(diary, lambda: next(times), streamed=True)
    lease.first_token(1.5)
    lease.record = RequestRecord("id", "POST", "/", prompt_tokens=10, cached_tokens=8, completion_tokens=3)
    lease.release()
    lease.release()
    assert diary.told == [("sent", 1.0, True), ("first token", 1.5), ("ended", 2.0, 8, 10, 3)]


def test_a_visit_that_came_to_nothing_ends_without_counts() -> None:
    diary = Diary()
    lease = Lease(member(InFlight()))
    lease.begin_visit(diary, lambda: 1.0, streamed=False)
    lease.release()
    assert diary.told == [("sent", 1.0, False), ("ended", 1.0, None, None, None)]


def test_nobody_hears_of_a_lease_without_a_visit() -> None:
    lease = Lease(member(InFlight()))
    lease.first_token(1.0)
    lease.release()


class Keeping:
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.released_count = 0

    def released(self, member: Member) -> None:
        self.released_count += 1

    def proven(self, member: Member) -> None:
        """Nothing to do."""


def test_a_visit_that_fails_to_end_keeps_no_place() -> None:
    class Broken(Diary):
        def ended(self, now: float, cached: int | None, prompt: int | None, completion: int | None) -> None:
            raise RuntimeError("a mistake in a strategy")

    in_flight, keeper = InFlight(), Keeping()
    lease = Lease(member(in_flight), keeper)
    lease.begin_visit(Broken(), lambda: 1.0, streamed=True)
    with pytest.raises(RuntimeError):
        lease.release()
    assert (in_flight.count, keeper.released_count) == (0, 1)
