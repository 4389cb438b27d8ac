"""Runs the simulations of one workload in a few processes, and makes a row of each.

Processes are forked when the requests are there, which are large, so that they are not copied to each.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.fleetsim_grid import cases
from benchmarks.fleetsim_grid.changes import Change, changes
from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.capacity import at_rate, ideal_work
from prefix_router.fleetsim.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from prefix_router.fleetsim.request import SimulatedRequest

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation, or, for a change of the fleet, two. strategy: as on the command line."""

    strategy: str
    load: float
    routers: int = 1
    change: Change | None = None

    @property
    def name(self) -> str:
        """The strategy without a length that was picked by hand."""
        name, _, depth = self.strategy.partition(":")
        return name if depth.isdecimal() else self.strategy


class _Shared:
    """What forked processes find: the requests, and the rate of load 1."""

    requests: Sequence[SimulatedRequest]
    capacity: float


def grid() -> list[Case]:
    """The cases of every workload."""
    return [
        *(Case(strategy, load) for load in cases.LOADS for strategy in cases.STRATEGIES),
        *(Case(strategy, cases.OVERLOAD) for strategy in cases.OVERLOADED),
        *(Case(strategy, load, cases.ROUTERS) for load in cases.LOADS for strategy in cases.SEVERAL_ROUTERS),
    ]


def lengths() -> list[Case]:
    """The ring with every hand-picked length."""
    return [Case(f"{cases.RING}:{tokens}", cases.LENGTHS_LOAD) for tokens in cases.LENGTHS]


def changing() -> list[Case]:
    """A replica that joins and one that leaves."""
    return [
        Case(strategy, cases.CHANGES_LOAD, change=change)
        for change in Change
        for strategy in cases.CHANGES_STRATEGIES
    ]


PARTS = {"rows": grid, "lengths": lengths, "changes": changing}
"""What can be run with a workload."""


def run(
    workload: cases.Workload,
    requests: Sequence[SimulatedRequest],
    strategies: Collection[str],
    jobs: int,
) -> dict[str, Any]:
    """Everything about one workload under `strategies`, ready for JSON."""
    work = ideal_work(requests)
    _Shared.requests = requests
    _Shared.capacity = work.capacity(PROFILES[DEFAULT_PROFILE], cases.REPLICAS)
    parts = {part: PARTS[part]() for part in workload.parts}
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        found = {
            part: pool.imap(_row, [case for case in some if case.name in strategies], chunksize=1)
            for part, some in parts.items()
        }
        rows = {part: list(some) for part, some in found.items()}
    return {
        "requests": len(requests),
        "ideal_hit_rate": round(work.hit_rate, 4),
        "requests_per_second_at_load_1": round(_Shared.capacity, 2),
        "mean_prompt_tokens": round(work.prompt_tokens / len(requests)),
        **rows,
    }


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What is known of a workload: new rows, and the old ones that they do not replace."""
    rows = {part: [*value] for part, value in new.items() if isinstance(value, list)}
    for part, some in rows.items():
        replaced = {_identity(row) for row in some}
        some[:0] = [row for row in old.get(part, ()) if _identity(row) not in replaced]
    return {**new, **rows}


def _identity(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("strategy", "load", "routers", "change"))


def _row(case: Case) -> Row:
    requests = at_rate(_Shared.requests, case.load * _Shared.capacity)
    if case.change is not None:
        return changes(requests, case.strategy, case.change)
    result = simulate(requests, cases.plan(case.strategy, case.routers))
    counts = Counter(outcome.replica for outcome in result.outcomes)
    row = result.row("", case.load)
    del row["workload"]
    return {**row, "strategy": case.strategy, "share_min": round(min(counts.values()) / len(requests), 4)}
