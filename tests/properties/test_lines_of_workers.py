"""Two processes, two lines, the same backends: no limit is passed, nobody is overtaken or forgotten.

Arrivals, ends and departures in any order. A bell is answered before the next step, as by a process that has
nothing else to do; what happens within one step of a decision is in `tests/unit/workers/test_claims.py`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.gate import Entry, Gate, Question, Refusal
from prefix_router.routing.admission import AdmissionLimits
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, Member
from prefix_router.routing.strategies import STRATEGY_NAMES, build_strategy
from prefix_router.workers.shared_counts import SharedCounts
from tests.support.fleets import fleet_of, query

WORKERS = (1, 2)
indices = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(WORKERS)),
    st.tuples(st.just("come"), st.sampled_from(WORKERS)),
    st.tuples(st.just("end"), indices),
    st.tuples(st.just("leave"), indices),
)


@dataclass
class Store:
    fleet: Fleet


@dataclass(eq=False)
class Visit:
    task: asyncio.Task[Entry | Refusal]
    ended: bool = False

    @property
    def waits(self) -> bool:
        return not self.task.done()

    @property
    def holds(self) -> bool:
        return self.task.done() and not self.task.cancelled() and not self.ended

    def end(self) -> None:
        entry = self.task.result()
        assert isinstance(entry, Entry)
        self.ended = True
        entry.lease.release()


class World:
    """Two gates over one memory, and everybody who ever came, in order of arrival."""

    def __init__(self, counts: SharedCounts, limits: list[int], strategy: str) -> None:
        self.counts = counts
        self.limits = limits
        self.strategy = build_strategy(strategy, 1)
        self.gates = {worker: self.gate(worker) for worker in WORKERS}
        self.visits: list[Visit] = []

    def gate(self, worker: int) -> Gate:
        fleet = fleet_of(
            Member(
                Backend(BackendName(f"{slot}"), "http://x", max_in_flight=limit),
                BackendState.HEALTHY,
                self.counts.in_flight(slot, worker),
            )
            for slot, limit in enumerate(self.limits)
        )
        limits = AdmissionLimits(0, 100, 1000.0)
        return Gate(Store(fleet), limits, asyncio.get_running_loop().time, among_others=True)

    async def take_step(self, step: tuple[str, int]) -> None:
        match step:
            case ("come", worker):
                question = Question(query(), self.strategy)
                entering = self.gates[worker].enter(question, RequestRecord("r", "POST", "/"))
                self.visits.append(Visit(asyncio.create_task(entering)))
            case ("end", index):
                if holding := [visit for visit in self.visits if visit.holds]:
                    holding[index % len(holding)].end()
            case ("leave", index):
                if waiting := [visit for visit in self.visits if visit.waits]:
                    waiting[index % len(waiting)].task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
            self.answer_bells()

    def answer_bells(self) -> None:
        for worker, gate in self.gates.items():
            with suppress(BlockingIOError):
                os.eventfd_read(self.counts.bells[worker - 1])
                gate.look_again()

    def check(self) -> None:
        counts = [self.counts.in_flight(slot, 0).count for slot in range(len(self.limits))]
        assert sum(counts) == sum(visit.holds for visit in self.visits)
        assert all(count <= limit for count, limit in zip(counts, self.limits, strict=True))
        waits = [visit.waits for visit in self.visits if not visit.task.cancelled()]
        assert waits == sorted(waits)  # whoever came before somebody who goes has gone
        assert not any(waits) or counts == self.limits


@given(
    st.lists(steps, max_size=40),
    st.lists(st.integers(1, 2), min_size=1, max_size=3),
    st.sampled_from(sorted(STRATEGY_NAMES)),
)
@settings(max_examples=150, deadline=None)
def test_two_lines_are_served_like_one(
    script: list[tuple[str, int]], limits: list[int], strategy: str
) -> None:
    async def play() -> None:
        counts = SharedCounts.create(len(WORKERS), len(limits))
        world = World(counts, limits, strategy)
        for step in [*script, *[("end", 0)] * len(script)]:
            await world.take_step(step)
            world.check()
        assert not any(visit.waits or visit.holds for visit in world.visits)
        assert not any(counts.in_use(slot) for slot in range(len(limits)))
        counts.close()

    asyncio.run(play())
