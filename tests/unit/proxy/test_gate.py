from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.gate import Entry, Gate, Question, Refusal
from prefix_router.routing.admission import AdmissionLimits
from prefix_router.routing.decision import Decision, Query, Reason
from prefix_router.routing.fleet import BackendName, BackendState, Fleet, Member
from prefix_router.routing.strategies import build_strategy
from tests.support.fleets import fleet_of, member, query
from tests.support.waiting import until

STRATEGY = build_strategy("prefix_aware", 64)
FOR_EVER = 1000.0


class Failing:
    """A strategy with a mistake that shows only once there is room."""

    name = "failing"

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        del query
        if fleet.members[0].full():
            return None
        raise RuntimeError("a mistake in a strategy")


@dataclass
class Store:
    fleet: Fleet


@dataclass
class Visit:
    """One request at the gate."""

    task: asyncio.Task[Entry | Refusal]
    record: RequestRecord

    @property
    def entry(self) -> Entry:
        outcome = self.task.result()
        assert isinstance(outcome, Entry)
        return outcome

    @property
    def backend(self) -> str:
        return self.entry.decision.member.name


@dataclass
class Scene:
    """A gate in front of some backends, and who has come to it."""

    gate: Gate
    store: Store
    visits: list[Visit] = field(default_factory=list)

    async def come(self, *, pinned: str | None = None, waited: float | None = None, **asked: object) -> Visit:
        """Let a request come, and go as far as it gets at once."""
        question = Question(
            query(**asked),  # type: ignore[arg-type]
            STRATEGY,
            None if pinned is None else BackendName(pinned),
        )
        record = RequestRecord("r", "POST", "/", queue_seconds=waited)
        visit = Visit(asyncio.create_task(self.gate.enter(question, record)), record)
        self.visits.append(visit)
        await asyncio.sleep(0)
        return visit

    def be(self, members: Iterable[Member]) -> None:
        """Put another fleet in place; nobody calls the gate."""
        self.store.fleet = fleet_of(members)


def scene(
    *members: Member, max_in_flight: int = 0, max_waiting: int = 100, timeout_seconds: float = FOR_EVER
) -> Scene:
    store = Store(fleet_of(members))
    limits = AdmissionLimits(max_in_flight, max_waiting, timeout_seconds)
    return Scene(Gate(store, limits, asyncio.get_running_loop().time), store)


async def test_with_room_a_request_gets_a_decision_and_its_lease_at_once() -> None:
    at = scene(member("a", limit=1))
    visit = await at.come()
    assert visit.entry.decision == Decision(at.store.fleet.members[0], Reason.KEYLESS)
    assert visit.record.queue_seconds is None
    assert at.store.fleet.members[0].in_flight.count == 1
    visit.entry.lease.release()
    assert at.store.fleet.members[0].in_flight.count == 0


async def test_a_lease_that_ends_goes_to_the_first_in_line_and_to_nobody_else() -> None:
    at = scene(member("a", limit=1))
    first, second, third = [await at.come() for _ in range(3)]
    assert at.gate.waiting == 2
    first.entry.lease.release()
    assert at.store.fleet.members[0].in_flight.count == 1  # taken before anybody else could come
    late = await at.come()
    assert second.task.done()
    assert not third.task.done()
    second.entry.lease.release()
    await asyncio.sleep(0)
    assert third.task.done()
    assert not late.task.done()
    assert second.record.queue_seconds is not None
    third.entry.lease.release()
    await asyncio.sleep(0)
    late.entry.lease.release()
    assert (at.gate.waiting, at.store.fleet.members[0].in_flight.count) == (0, 0)


async def test_who_is_woken_is_decided_about_anew() -> None:
    at = scene(member("a", limit=1), member("b", limit=1))
    holders = [await at.come() for _ in range(2)]
    waiter = await at.come(key=7)
    freed = holders[1]
    freed.entry.lease.release()
    await asyncio.sleep(0)
    assert waiter.backend == freed.backend


async def test_the_limit_of_the_whole_router_holds_over_all_backends() -> None:
    at = scene(member("a"), member("b"), max_in_flight=2)
    visits = [await at.come() for _ in range(5)]
    assert [visit.task.done() for visit in visits] == [True, True, False, False, False]
    visits[0].entry.lease.release()
    await asyncio.sleep(0)
    assert [visit.task.done() for visit in visits] == [True, True, True, False, False]
    for visit in visits[1:]:
        visit.entry.lease.release()
        await asyncio.sleep(0)
    assert sum(one.in_flight.count for one in at.store.fleet.members) == 0


async def test_a_request_for_another_backend_is_not_held_up() -> None:
    at = scene(member("a", limit=1, models=["a"]), member("b", limit=1, models=["b"]))
    await at.come(model="a")
    waiter = await at.come(model="a")
    other = await at.come(model="b")
    assert (waiter.task.done(), other.backend) == (False, "b")


async def test_a_continuation_waits_for_the_backend_that_knows_it() -> None:
    at = scene(member("a", limit=1), member("b"))
    holder = await at.come(pinned="a")
    assert holder.entry.decision.reason is Reason.CONTINUATION
    waiter = await at.come(pinned="a")
    assert not waiter.task.done()
    holder.entry.lease.release()
    await asyncio.sleep(0)
    assert waiter.backend == "a"


@pytest.mark.parametrize("pinned", ["gone", "a"])
async def test_a_continuation_goes_on_without_a_backend_that_is_out_of_service(pinned: str) -> None:
    at = scene(member("a", state=BackendState.DOWN), member("b"))
    assert (await at.come(pinned=pinned)).backend == "b"


async def test_a_continuation_does_not_go_back_to_where_it_has_failed() -> None:
    at = scene(member("a"), member("b"))
    assert (await at.come(pinned="a", failed=["a"])).backend == "b"


async def test_nobody_in_service_is_said_at_once() -> None:
    at = scene(member("a", state=BackendState.DOWN), max_waiting=0)
    assert (await at.come()).task.result() is Refusal.UNROUTABLE


async def test_a_full_line_sends_away_at_once() -> None:
    at = scene(member("a", limit=1), max_waiting=1)
    await at.come()
    waiter = await at.come()
    assert (await at.come()).task.result() is Refusal.QUEUE_FULL
    assert not waiter.task.done()


async def test_patience_ends_with_the_timeout_and_the_place_is_given_up() -> None:
    at = scene(member("a", limit=1), timeout_seconds=0.01)
    await at.come()
    waiter = await at.come()
    assert await waiter.task is Refusal.QUEUE_TIMEOUT
    assert at.gate.waiting == 0
    assert waiter.record.queue_seconds is not None


async def test_all_attempts_of_a_request_share_one_timeout() -> None:
    at = scene(member("a", limit=1), timeout_seconds=FOR_EVER)
    await at.come()
    waiter = await at.come(waited=FOR_EVER + 1)
    assert await waiter.task is Refusal.QUEUE_TIMEOUT
    assert (waiter.record.queue_seconds or 0) > FOR_EVER


async def test_a_client_that_leaves_gives_up_its_place_at_once() -> None:
    at = scene(member("a", limit=1))
    holder = await at.come()
    leaving, staying = await at.come(), await at.come()
    leaving.task.cancel()
    await asyncio.wait([leaving.task])
    assert leaving.task.cancelled()
    assert at.gate.waiting == 1
    holder.entry.lease.release()
    await asyncio.sleep(0)
    assert staying.backend == "a"


async def test_a_lease_is_not_given_to_who_has_just_been_cancelled() -> None:
    at = scene(member("a", limit=1))
    holder = await at.come()
    leaving, staying = await at.come(), await at.come()
    leaving.task.cancel()
    holder.entry.lease.release()  # before the cancelled task has run
    await asyncio.wait([leaving.task, staying.task])
    assert leaving.task.cancelled()
    assert staying.backend == "a"
    assert at.store.fleet.members[0].in_flight.count == 1


async def test_a_lease_that_was_given_to_who_is_then_cancelled_goes_to_the_next() -> None:
    at = scene(member("a", limit=1))
    holder = await at.come()
    leaving, staying = await at.come(), await at.come()
    holder.entry.lease.release()
    leaving.task.cancel()  # it has the lease, and has not run since
    await asyncio.wait([leaving.task, staying.task])
    assert leaving.task.cancelled()
    assert staying.backend == "a"
    staying.entry.lease.release()
    assert at.store.fleet.members[0].in_flight.count == 0


async def test_a_backend_that_joins_or_comes_back_is_noticed() -> None:
    at = scene(member("a", 1, limit=1))
    waiter = await at.come()
    at.be([at.store.fleet.members[0], member("b")])
    await until(waiter.task.done)
    assert waiter.backend == "b"


async def test_places_that_another_process_gives_back_are_noticed() -> None:
    at = scene(member("a", 2, limit=2))
    waiters = [await at.come(), await at.come(), await at.come()]
    at.store.fleet.members[0].in_flight.count = 0
    await until(waiters[1].task.done)
    assert not waiters[2].task.done()


async def test_a_newcomer_does_not_overtake_when_the_gate_has_not_noticed_yet() -> None:
    at = scene(member("a", 1, limit=1))
    waiter = await at.come()
    at.store.fleet.members[0].in_flight.count = 0
    late = await at.come()
    assert not late.task.done()
    await asyncio.sleep(0)
    assert waiter.task.done()


async def test_when_the_last_backend_in_service_goes_nobody_waits_for_it() -> None:
    at = scene(member("a", 1, limit=1))
    waiter = await at.come()
    at.be([member("a", 1, limit=1, state=BackendState.DOWN)])
    assert await waiter.task is Refusal.UNROUTABLE


async def test_higher_limits_let_waiters_go_at_once() -> None:
    at = scene(member("a"), max_in_flight=1)
    await at.come()
    waiter = await at.come()
    at.gate.limits = AdmissionLimits(max_in_flight=2)
    await asyncio.sleep(0)
    assert waiter.backend == "a"
    assert at.gate.limits.max_in_flight == 2


async def test_a_trial_that_has_proven_something_lets_the_next_one_begin() -> None:
    at = scene(member("a", 1, limit=1), member("b", state=BackendState.HALF_OPEN, limit=5))
    trial = await at.come()
    waiter = await at.come()
    assert (trial.backend, waiter.task.done()) == ("b", False)
    trial.entry.lease.prove()
    await asyncio.sleep(0)
    assert waiter.backend == "b"


async def test_a_trial_that_has_proven_something_while_nobody_waits_is_no_event() -> None:
    at = scene(member("b", state=BackendState.HALF_OPEN))
    trial = await at.come()
    trial.entry.lease.prove()
    assert (await at.come()).backend == "b"


async def test_a_refusal_that_comes_together_with_a_cancellation_is_nobodys_lease() -> None:
    at = scene(member("a", 1, limit=1))
    leaving = await at.come()
    at.be([])
    at.gate.limits = at.gate.limits  # refuses it
    leaving.task.cancel()
    await asyncio.wait([leaving.task])
    assert leaving.task.cancelled()
    assert at.gate.waiting == 0


async def test_who_is_cancelled_already_is_not_refused_as_well() -> None:
    at = scene(member("a", 1, limit=1))
    leaving = await at.come()
    leaving.task.cancel()
    at.be([])
    at.gate.limits = at.gate.limits
    await asyncio.wait([leaving.task])
    assert leaving.task.cancelled()
    assert at.gate.waiting == 0


async def test_a_strategy_that_fails_for_a_waiter_fails_that_request_alone() -> None:
    at = scene(member("a", limit=1))
    holder = await at.come()
    failing = asyncio.create_task(
        at.gate.enter(Question(query(), Failing()), RequestRecord("r", "POST", "/"))
    )
    await asyncio.sleep(0)
    waiter = await at.come()
    holder.entry.lease.release()
    await asyncio.wait([failing, waiter.task])
    assert isinstance(failing.exception(), RuntimeError)
    assert waiter.backend == "a"


async def test_a_strategy_that_has_nobody_though_there_is_room_keeps_nobody_waiting() -> None:
    class Declining:
        name = "declining"

        def choose(self, query: Query, fleet: Fleet) -> None:
            del query, fleet

    at = scene(member("a"))
    question = Question(query(), Declining())
    assert await at.gate.enter(question, RequestRecord("r", "POST", "/")) is Refusal.UNROUTABLE


async def test_a_failure_that_comes_together_with_a_cancellation_is_nobodys_lease() -> None:
    at = scene(member("a", limit=1))
    holder = await at.come()
    failing = asyncio.create_task(
        at.gate.enter(Question(query(), Failing()), RequestRecord("r", "POST", "/"))
    )
    await asyncio.sleep(0)
    holder.entry.lease.release()
    failing.cancel()
    await asyncio.wait([failing])
    assert failing.cancelled()
    assert at.store.fleet.members[0].in_flight.count == 0


async def test_the_hint_when_to_come_again_is_that_of_the_line() -> None:
    at = scene(member("a", limit=1), timeout_seconds=17)
    assert at.gate.retry_after_seconds() == 1
    await at.come()
    waiter = await at.come()
    assert at.gate.retry_after_seconds() == 17
    waiter.task.cancel()


async def test_nothing_is_left_of_two_thousand_timeouts() -> None:
    loop = asyncio.get_running_loop()
    at = scene(member("a", 1, limit=1), max_waiting=5000, timeout_seconds=0.01)
    tasks, timers = len(asyncio.all_tasks()), live_timers(loop)
    waiters = [await at.come() for _ in range(2000)]
    outcomes = [await waiter.task for waiter in waiters]
    assert set(outcomes) == {Refusal.QUEUE_TIMEOUT}
    assert (at.gate.waiting, len(asyncio.all_tasks()), live_timers(loop)) == (0, tasks, timers)


async def test_nothing_is_left_of_two_thousand_waiters_that_were_served_or_left() -> None:
    loop = asyncio.get_running_loop()
    at = scene(member("a", limit=1), max_waiting=5000)
    tasks, timers = len(asyncio.all_tasks()), live_timers(loop)
    holder = await at.come()
    waiters = [await at.come() for _ in range(2000)]
    for waiter in waiters[::2]:
        waiter.task.cancel()
    holder.entry.lease.release()
    for waiter in waiters[1::2]:
        await waiter.task
        waiter.entry.lease.release()
    assert (at.gate.waiting, len(asyncio.all_tasks()), live_timers(loop)) == (0, tasks, timers)
    assert at.store.fleet.members[0].in_flight.count == 0


def live_timers(loop: asyncio.AbstractEventLoop) -> int:
    scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    return sum(not handle.cancelled() for handle in scheduled)


async def test_a_strategy_that_fails_when_a_request_is_sent_keeps_no_place() -> None:
    class Broken:
        expected_tokens = 0

        def sent(self, now: float, *, streamed: bool) -> None:
            raise RuntimeError("a mistake in a strategy")

        def first_token(self, now: float) -> None:
            """Nobody gets that far."""

        def ended(self, now: float, cached: int | None, prompt: int | None, completion: int | None) -> None:
            """It ends all the same."""

    class Learning:
        name = "learning"

        def choose(self, query: Query, fleet: Fleet) -> Decision | None:
            del query
            return Decision(fleet.members[0], Reason.PLACED, visit=Broken())

    only = member("a")
    gate = Gate(Store(fleet_of([only])), AdmissionLimits(0, 0, 1.0), lambda: 0.0)
    with pytest.raises(RuntimeError):
        gate.enter_at_once(Question(query(1), Learning()))
    assert only.in_flight.count == 0
    assert gate.enter_at_once(Question(query(1), STRATEGY)) is not None
