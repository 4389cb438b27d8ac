"""The line in front of the backends, under any order of arrivals, departures, cancellations and failures.

Whatever happens: no limit is passed, nobody who could go is left waiting, nobody is overtaken by a request
with the same needs, and at the end every place has been given back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.gate import Entry, Gate, Question, Refusal
from prefix_router.routing.admission import AdmissionLimits, Needs, Room, room_for
from prefix_router.routing.decision import Query
from prefix_router.routing.fleet import BackendName, BackendState, Fleet, Member, with_last_resorts
from prefix_router.routing.strategies import STRATEGY_NAMES, build_strategy
from tests.support.fleets import backend_names, member, ring_over

NAMES = backend_names("a", "b", "c")
MODELS = ("m", "n")
IN_SERVICE = (BackendState.HEALTHY, BackendState.HALF_OPEN)

members = st.builds(
    lambda name, limit, models: (name, limit, models),
    name=st.sampled_from(NAMES),
    limit=st.sampled_from([None, 1, 1, 2]),
    models=st.sampled_from([None, {"m"}, {"m", "n"}]),
)
seldom = st.sampled_from([frozenset()] * 6 + [frozenset({name}) for name in NAMES])
queries = st.builds(
    Query,
    key=st.none() | st.integers(0, 2**64 - 1),
    model=st.none() | st.sampled_from(MODELS),
    draw=st.integers(0, 2**64 - 1),
    session=st.none() | st.sampled_from(["s", "t"]),
    failed=seldom,
    refused=seldom,
)
pins = st.sampled_from([None] * 6 + NAMES)
indices = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("come"), queries, pins),
    st.tuples(st.just("come"), queries, pins),
    st.tuples(st.just("come"), queries, pins),
    st.tuples(st.just("end"), indices),
    st.tuples(st.just("end"), indices),
    st.tuples(st.just("prove"), indices),
    st.tuples(st.just("leave"), indices),
    st.tuples(st.just("end and leave"), indices, st.just(0) | indices),
    st.tuples(st.just("health"), st.sampled_from(NAMES), st.sampled_from([*BackendState, *IN_SERVICE])),
    st.tuples(st.just("drain"), st.sampled_from(NAMES), st.booleans()),
)


@dataclass(eq=False)
class Visit:
    number: int
    needs: Needs
    task: asyncio.Task[Entry | Refusal]
    ended: bool = False
    looked_at: bool = False

    @property
    def holds(self) -> bool:
        return not self.ended and self.done and isinstance(self.task.result(), Entry)

    @property
    def done(self) -> bool:
        return self.task.done() and not self.task.cancelled()

    @property
    def entry(self) -> Entry:
        entry = self.task.result()
        assert isinstance(entry, Entry)
        return entry


class World:
    """A fleet, a gate, and everybody who ever came to it."""

    def __init__(self, fleet: Fleet, limits: AdmissionLimits, strategy: str) -> None:
        self.fleet = fleet
        self.gate = Gate(self, limits, asyncio.get_running_loop().time)
        self.strategy = build_strategy(strategy, 2)
        self.visits: list[Visit] = []

    async def take_step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("come", Query() as query, pinned):
                assert pinned is None or isinstance(pinned, str)
                question = Question(query, self.strategy, None if pinned is None else BackendName(pinned))
                record = RequestRecord("r", "POST", "/")
                task = asyncio.create_task(self.gate.enter(question, record))
                self.visits.append(Visit(len(self.visits), question.needs(), task))
            case ("end", int(index)):
                self.end(index)
            case ("prove", int(index)):
                for visit in self.pick(index, [visit for visit in self.visits if visit.holds]):
                    visit.entry.lease.prove()
            case ("leave", int(index)):
                self.leave(index)
            case ("end and leave", int(index), int(other)):
                self.end(index)
                self.leave(other)  # perhaps of who has just been given that place
            case ("health", str(name), BackendState() as state):
                self.change(BackendName(name), state=state)
            case ("drain", str(name), bool(draining)):
                self.change(BackendName(name), draining=draining)
        for _ in range(3):
            await asyncio.sleep(0)

    def pick(self, index: int, among: list[Visit]) -> list[Visit]:
        return [among[index % len(among)]] if among else []

    def end(self, index: int) -> None:
        for visit in self.pick(index, [visit for visit in self.visits if visit.holds]):
            visit.ended = True
            visit.entry.lease.release()

    def leave(self, index: int) -> None:
        for visit in self.pick(index, [visit for visit in self.visits if not visit.task.done()]):
            visit.task.cancel()

    def change(self, name: BackendName, state: BackendState | None = None, draining: bool = False) -> None:
        changed = [
            Member(
                one.backend,
                (state or one.state) if one.name == name else one.state,
                one.in_flight,
                one.models,
                draining if one.name == name else one.draining,
            )
            for one in self.fleet.members
        ]
        self.fleet = Fleet(tuple(with_last_resorts(changed)), self.fleet.ring)
        self.look_again()

    def look_again(self) -> None:
        """Have the gate notice what nobody tells it, as it does by itself a moment later."""
        self.gate.limits = self.gate.limits

    def check(self) -> None:
        held = [visit for visit in self.visits if visit.holds]
        limits = self.gate.limits
        assert not limits.max_in_flight or len(held) <= limits.max_in_flight
        for one in self.fleet.members:
            leases = sum(visit.entry.decision.member.name == one.name for visit in held)
            assert one.in_flight.count == leases
            assert one.backend.max_in_flight is None or leases <= one.backend.max_in_flight
        waiting = [visit for visit in self.visits if not visit.task.done()]
        assert len(waiting) == self.gate.waiting <= limits.max_waiting
        if not limits.max_in_flight or len(held) < limits.max_in_flight:
            assert all(room_for(visit.needs, self.fleet) is not Room.FREE for visit in waiting)
        self.check_order(waiting)

    def check_nobody_waits_in_vain(self) -> None:
        """Whom nobody in service could take any more is not kept."""
        waiting = [visit for visit in self.visits if not visit.task.done()]
        assert all(room_for(visit.needs, self.fleet) is not Room.NONE for visit in waiting)

    def check_order(self, waiting: list[Visit]) -> None:
        """Whoever was served now came before all who still wait with the same needs."""
        for visit in self.visits:
            if visit.holds and not visit.looked_at:
                visit.looked_at = True
                assert not any(
                    other.needs == visit.needs and other.number < visit.number for other in waiting
                )


async def play(world: World, script: list[tuple[object, ...]]) -> None:
    for step in script:
        await world.take_step(step)
        world.check()
        world.look_again()
        await asyncio.sleep(0)
        world.check()
        world.check_nobody_waits_in_vain()
    while any(visit.holds for visit in world.visits):
        world.end(0)
        await asyncio.sleep(0)
    for visit in world.visits:
        visit.task.cancel()
    await asyncio.gather(*(visit.task for visit in world.visits), return_exceptions=True)
    world.check()
    assert world.gate.waiting == 0
    assert [one.in_flight.count for one in world.fleet.members] == [0] * len(world.fleet.members)
    assert [one.in_flight.trials for one in world.fleet.members] == [0] * len(world.fleet.members)


@given(
    fleet=st.lists(members, min_size=1, max_size=3, unique_by=lambda parts: parts[0]),
    max_in_flight=st.sampled_from([0, 0, 1, 3]),
    max_waiting=st.sampled_from([0, 2, 50, 50]),
    strategy=st.sampled_from(STRATEGY_NAMES),
    script=st.lists(steps, min_size=15, max_size=60),
)
@settings(deadline=None, max_examples=150)
def test_the_line_is_fair_and_loses_nothing(
    fleet: list[tuple[BackendName, int | None, set[str] | None]],
    max_in_flight: int,
    max_waiting: int,
    strategy: str,
    script: list[tuple[object, ...]],
) -> None:
    async def run() -> None:
        backends = [member(name, limit=limit, models=models) for name, limit, models in fleet]
        start = Fleet(tuple(backends), ring_over(backends, 8))
        await play(World(start, AdmissionLimits(max_in_flight, max_waiting, 1000.0), strategy), script)

    asyncio.run(run())
