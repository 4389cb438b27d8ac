"""Two processes that take the last place at the same moment, again and again: never do both keep it."""

from __future__ import annotations

import multiprocessing
import os

from prefix_router.proxy.lease import Keeper, Lease
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Member
from prefix_router.workers.shared_counts import SharedCounts

ONE, TWO = 1, 2
ROUNDS = 2_000
PLACE = 0
STEPS = {ONE: 100, TWO: 200}
"""Rows in which a process counts what it has done; far from each other and from the place."""


class Nobody(Keeper):
    """Waits for nothing."""

    def released(self, member: Member) -> None:
        del member

    def proven(self, member: Member) -> None:
        del member


def play(descriptor: int, process: int) -> None:
    """Take and give back in step with the other process; fail when both have the place."""
    counts = SharedCounts(descriptor, workers=2)
    backend = Backend(BackendName("a"), "http://a", max_in_flight=1)
    member = Member(backend, BackendState.HEALTHY, counts.in_flight(PLACE, process))
    mine = counts.in_flight(STEPS[process], process)
    others = counts.in_flight(STEPS[ONE + TWO - process], process)
    steps = 0

    def together() -> None:
        nonlocal steps
        steps += 1
        mine.take()
        while others.count < steps:
            pass

    for _ in range(ROUNDS):
        together()
        lease = Lease.within_limit(member, Nobody())
        together()
        assert member.in_flight.count <= 1
        together()
        if lease is not None:
            lease.release()


def test_two_processes_never_keep_the_last_place_both() -> None:
    counts = SharedCounts.create(workers=2)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=play, args=(os.dup(counts.descriptor), number), daemon=True)
        for number in (ONE, TWO)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert not counts.in_use(PLACE)
    counts.close()
