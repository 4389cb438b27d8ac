"""Two lines for the same places, as two processes have them: here over one memory, in one event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.gate import Entry, Gate, Question, Refusal
from prefix_router.proxy.lease import Lease
from prefix_router.routing.admission import AdmissionLimits
from prefix_router.routing.decision import Decision, Query, Strategy
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, Member
from prefix_router.routing.strategies import build_strategy
from prefix_router.workers import shared_counts
from prefix_router.workers.shared_counts import SUPERVISOR, SharedCounts
from tests.support.fleets import fleet_of, query

ONE, TWO = 1, 2
STRATEGY = build_strategy("prefix_aware", 64)
FOR_EVER = 1000.0


@dataclass
class Process:
    """One worker's view: its own members and its own line over the shared counts."""

    number: int
    counts: SharedCounts
    limit: int = 1
    backends: tuple[str, ...] = ("a",)
    limits: AdmissionLimits = field(default_factory=lambda: AdmissionLimits(0, 100, FOR_EVER))
    fleet: Fleet = field(init=False)
    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.fleet = fleet_of(
            Member(
                Backend(BackendName(name), f"http://{name}", max_in_flight=self.limit),
                BackendState.HEALTHY,
                self.counts.in_flight(slot, self.number),
            )
            for slot, name in enumerate(self.backends)
        )
        self.gate = Gate(self, self.limits, asyncio.get_running_loop().time, among_others=True)

    async def come(self, strategy: Strategy = STRATEGY) -> asyncio.Task[Entry | Refusal]:
        record = RequestRecord("r", "POST", "/")
        task = asyncio.create_task(self.gate.enter(Question(query(), strategy), record))
        await asyncio.sleep(0)
        return task

    async def hold(self) -> Lease:
        return got(await self.come())

    def rung(self) -> bool:
        """Whether its bell has been rung since it was last asked."""
        try:
            return os.eventfd_read(self.counts.bells[self.number - 1]) > 0
        except BlockingIOError:
            return False


def got(task: asyncio.Task[Entry | Refusal]) -> Lease:
    entry = task.result()
    assert isinstance(entry, Entry)
    return entry.lease


@pytest.fixture
async def counts() -> AsyncIterator[SharedCounts]:
    made = SharedCounts.create(workers=2, capacity=4)
    yield made
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    made.close()


@dataclass
class Meanwhile:
    """The strategy of the tests, but something happens right before it decides for the first time."""

    happens: Callable[[], object]
    name: str = "meanwhile"

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        happens, self.happens = self.happens, lambda: None
        happens()
        return STRATEGY.choose(query, fleet)


async def test_the_last_place_is_taken_once_when_two_take_it_at_the_same_moment(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    here, there = one.fleet.members[0], two.fleet.members[0]
    assert here.admits()
    assert there.admits()
    lease = Lease.within_limit(here, one.gate)
    assert lease is not None
    assert Lease.within_limit(there, two.gate) is None
    assert here.in_flight.count == 1
    lease.release()


async def test_without_a_limit_a_lease_is_always_within_it(counts: SharedCounts) -> None:
    one = Process(ONE, counts)
    unlimited = Member(Backend(BackendName("a"), "http://a"), BackendState.HEALTHY, counts.in_flight(0, ONE))
    leases = [Lease.within_limit(unlimited, one.gate) for _ in range(3)]
    assert None not in leases
    assert unlimited.in_flight.count == 3


async def test_a_newcomer_that_comes_too_late_waits(counts: SharedCounts) -> None:
    one, other = Process(ONE, counts), counts.in_flight(0, TWO)
    newcomer = await one.come(Meanwhile(other.take))
    assert not newcomer.done()
    assert one.gate.waiting == 1
    other.give()
    one.gate.look_again()
    await asyncio.sleep(0)
    got(newcomer).release()


async def test_a_newcomer_goes_when_a_place_is_freed_while_it_is_being_judged(counts: SharedCounts) -> None:
    one, other = Process(ONE, counts), counts.in_flight(0, TWO)
    other.take()

    class Freed:
        name = "freed"

        def choose(self, query: Query, fleet: Fleet) -> Decision | None:
            decision = STRATEGY.choose(query, fleet)
            if decision is None:
                other.give()
            return decision

    newcomer = await one.come(Freed())
    got(newcomer).release()


async def test_a_waiter_that_comes_too_late_stands_where_it_stood(counts: SharedCounts) -> None:
    one, other = Process(ONE, counts), counts.in_flight(0, TWO)
    other.take()
    first = await one.come(Meanwhile(other.take))
    second = await one.come()
    other.give()
    one.gate.look_again()
    assert one.gate.waiting == 2
    assert not first.done()
    other.give()
    one.gate.look_again()
    await asyncio.sleep(0)
    assert first.done()
    assert not second.done()
    got(first).release()
    await asyncio.sleep(0)
    got(second).release()
    assert other.count == 0


async def test_a_place_goes_to_who_has_waited_longest_in_any_line(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    held = await one.hold()
    theirs = await two.come()
    ours = await one.come()
    held.release()
    await asyncio.sleep(0)
    assert not ours.done()
    assert two.rung()
    assert not one.rung()
    two.gate.look_again()
    await asyncio.sleep(0)
    got(theirs).release()
    assert one.rung()
    one.gate.look_again()
    await asyncio.sleep(0)
    got(ours).release()
    assert counts.in_flight(0, SUPERVISOR).count == 0


async def test_a_newcomer_does_not_take_the_place_of_another_line(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    held = await one.hold()
    waiter = await two.come()
    held.release()
    newcomer = await one.come()
    assert not newcomer.done()
    two.gate.look_again()
    await asyncio.sleep(0)
    got(waiter).release()
    one.gate.look_again()
    await asyncio.sleep(0)
    got(newcomer).release()


async def test_who_has_a_line_of_its_own_rings_nobody_else(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    held = await one.hold()
    ours = await one.come()
    theirs = await two.come()
    held.release()
    await asyncio.sleep(0)
    assert not two.rung()
    got(ours).release()
    assert two.rung()
    assert not theirs.done()


async def test_a_claim_that_leaves_a_place_alone_lapses(
    counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    held = await one.hold()
    await two.come()
    ours = await one.come()
    monkeypatch.setattr(shared_counts, "CLAIM_SECONDS", 0.0)
    held.release()
    await asyncio.sleep(0)
    got(ours).release()


async def test_a_backend_for_which_nobody_waits_any_more_is_claimed_by_nobody(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts, backends=("a", "b")), Process(TWO, counts, backends=("a", "b"))
    held = [await one.hold() for _ in range(2)]
    waiter = await two.come()
    assert [member.in_flight.claimed() for member in one.fleet.members] == [True, True]
    two.fleet = fleet_of(two.fleet.members[1:])
    two.gate.look_again()
    assert [member.in_flight.claimed() for member in one.fleet.members] == [False, True]
    waiter.cancel()
    await asyncio.wait([waiter])
    assert [member.in_flight.claimed() for member in one.fleet.members] == [False, False]
    for lease in held:
        lease.release()


async def test_a_backend_that_has_passed_its_trial_is_claimed_by_who_waits(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts, backends=("a", "b"))
    a, b = two.fleet.members
    two.fleet = fleet_of([a, Member(b.backend, BackendState.HALF_OPEN, b.in_flight)])
    other = counts.in_flight(1, ONE)
    other.take()
    other.begin_trial()
    held = await one.hold()
    waiter = await two.come()
    assert not other.claimed()
    other.end_trial()
    two.gate.look_again()
    assert other.claimed()
    other.give()
    assert two.rung()
    two.gate.look_again()
    await asyncio.sleep(0)
    got(waiter).release()
    held.release()


async def test_a_line_behind_a_limit_of_its_own_process_claims_nothing(counts: SharedCounts) -> None:
    one = Process(ONE, counts)
    two = Process(TWO, counts, limit=9, limits=AdmissionLimits(1, 100, FOR_EVER))
    held = await two.hold()
    waiter = await two.come()
    assert not one.fleet.members[0].in_flight.claimed()
    held.release()
    await asyncio.sleep(0)
    got(waiter).release()


async def test_what_a_dead_process_claimed_is_free_and_everybody_hears_of_it(counts: SharedCounts) -> None:
    one, two = Process(ONE, counts), Process(TWO, counts)
    held = await one.hold()
    await two.come()
    assert counts.in_use(0)
    assert one.fleet.members[0].in_flight.claimed()
    assert counts.reclaim(TWO) == 0
    assert not one.fleet.members[0].in_flight.claimed()
    assert one.rung()
    held.release()
    assert not counts.in_use(0)


async def test_a_row_that_is_claimed_is_in_use(counts: SharedCounts) -> None:
    counter = counts.in_flight(2, ONE)
    counter.claim(5.0)
    assert counts.in_use(2)
    counter.claim(None)
    assert not counts.in_use(2)


async def test_after_the_end_nobody_is_rung() -> None:
    counts = SharedCounts.create(workers=1, capacity=1)
    counts.close()
    counts.ring(1)
