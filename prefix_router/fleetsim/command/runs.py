"""Runs simulations in several processes, and knows how far they are.

The processes are forked, so that the requests of a workload, which may be gigabytes, are not copied to each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from prefix_router.fleetsim.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    from prefix_router.fleetsim.command.scenario import Scenario
    from prefix_router.fleetsim.plan import FleetPlan

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation: a fleet under a load, a share of its capacity.

    label: what its row calls the strategy; the strategy's own name if None.
    """

    plan: FleetPlan
    load: float
    label: str | None = None


class _Work:
    """What a process has been given before its first run."""

    scenario: Scenario
    done: MutableSequence[float]


def run_all(
    scenario: Scenario, runs: Sequence[Run], jobs: int, progress: Callable[[float], None]
) -> list[dict[str, Any]]:
    """A row for each run, in their order, from at most `jobs` processes.

    progress: is told the share of the work that is done, now and then. Raises BrokenProcessPool when a
    process is killed, for want of memory for instance.
    """
    context = multiprocessing.get_context("fork")
    done = context.RawArray("d", len(runs))
    if jobs == 1 or len(runs) == 1:
        _adopt(scenario, done)
        return [_run(number, run, lambda: progress(sum(done) / len(runs))) for number, run in enumerate(runs)]
    earlier = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(runs)), context, initializer=_start, initargs=(scenario, done))
    try:
        # An interrupt while processes start would leave one that nobody knows of: it comes a little later.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        futures = [pool.submit(_run, number, run) for number, run in enumerate(runs)]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        pending = set(futures)
        while pending:
            _, pending = wait(pending, _LOOK_SECONDS, FIRST_COMPLETED)
            progress(sum(done) / len(runs))
        return [future.result() for future in futures]
    except BaseException:
        # Nobody wants the results any more: do not wait for them.
        for child in set(multiprocessing.active_children()) - earlier:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(scenario: Scenario, done: MutableSequence[float]) -> None:
    """The beginning of a process: Ctrl-C is its parent's business, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    _adopt(scenario, done)


def _end_with_parent() -> None:
    """End this process when its parent is gone, killed without a chance to end it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _adopt(scenario: Scenario, done: MutableSequence[float]) -> None:
    _Work.scenario = scenario
    _Work.done = done


def _run(number: int, run: Run, tell: Callable[[], None] = lambda: None) -> dict[str, Any]:
    scenario = _Work.scenario
    facts = scenario.facts

    def progress(share: float) -> None:
        _Work.done[number] = share
        tell()

    result = simulate(scenario.at_load(run.load), run.plan, progress)
    progress(1.0)
    return {
        **result.row(facts.label, run.load),
        "strategy": run.label or run.plan.strategy,
        "requests_per_second": round(run.load * facts.capacity, 2),
        "ideal_hit_rate": round(facts.ideal_hit_rate, 4),
    }
