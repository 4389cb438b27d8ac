"""What was aimed at, and whether the rows show it.

Each target is judged in each place where it applies; what is missed is listed with by how much. Times of a
few milliseconds are judged like all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.fleetsim_grid.cases import (
    ADAPTIVE,
    AUTO,
    BY_LOAD,
    LENGTHS_LOAD,
    LOADS,
    OVERLOAD,
    REPLICAS,
    RING,
    ROUTERS,
    TREE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Row = dict[str, Any]
Workloads = dict[str, dict[str, Any]]

PERCENTILES = ("p50", "p90", "p99")
TIME_MARGIN = 1.02
HIT_RATE_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target. places: where it was judged. missed: a sentence for each place that misses it."""

    target: str
    places: int
    missed: list[str] = field(default_factory=list)


def rows_at(workload: Mapping[str, Any], load: float, routers: int = 1) -> dict[str, Row]:
    """The rows of a load by their strategies."""
    return {
        row["strategy"]: row
        for row in workload.get("rows", ())
        if row["load"] == load and row["routers"] == routers
    }


def verdicts(workloads: Workloads) -> list[Verdict]:
    """All of them, in order."""
    return [
        *_lowest(workloads),
        _best_hits(workloads),
        _nothing_shared(workloads),
        *_published(workloads),
        _found_depth_hits(workloads),
        _found_depth_spreads(workloads),
        _overloaded(workloads),
        *_several_routers(workloads),
        *_changes(workloads),
    ]


def _cells(workloads: Workloads) -> Iterator[tuple[str, dict[str, Row]]]:
    for name, workload in workloads.items():
        for load in LOADS:
            rows = rows_at(workload, load)
            if ADAPTIVE in rows:
                yield f"{name} at {load:g}", rows


def _lowest(workloads: Workloads) -> list[Verdict]:
    found = []
    for percentile in PERCENTILES:
        verdict = Verdict(f"`adaptive` has the lowest {percentile.upper()}, within 2%", 0)
        places = 0
        for place, rows in _cells(workloads):
            places += 1
            times = {name: row["ttft_ms"][percentile] for name, row in rows.items()}
            best = min(times, key=times.__getitem__)
            if times[ADAPTIVE] > TIME_MARGIN * times[best]:
                more = times[ADAPTIVE] / times[best] - 1
                verdict.missed.append(f"{place}: +{more:.0%} over `{best}`")
        found.append(Verdict(verdict.target, places, verdict.missed))
    return found


def _best_hits(workloads: Workloads) -> Verdict:
    missed = []
    places = 0
    for place, rows in _cells(workloads):
        places += 1
        best = max(rows, key=lambda name: rows[name]["hit_rate"])
        lost = rows[best]["hit_rate"] - rows[ADAPTIVE]["hit_rate"]
        if lost > HIT_RATE_MARGIN:
            missed.append(f"{place}: {100 * lost:.1f} points below `{best}`")
    return Verdict("`adaptive`'s hit rate is within one point of the best", places, missed)


def _nothing_shared(workloads: Workloads) -> Verdict:
    missed = []
    places = 0
    for load in LOADS:
        rows = rows_at(workloads.get("unique", {}), load)
        for percentile in PERCENTILES if ADAPTIVE in rows else ():
            places += 1
            more = rows[ADAPTIVE]["ttft_ms"][percentile] / rows[BY_LOAD]["ttft_ms"][percentile] - 1
            if more > TIME_MARGIN - 1:
                missed.append(f"{percentile.upper()} at {load:g}: +{more:.1%}")
    return Verdict(f"on `unique`, `adaptive` is no worse than `{BY_LOAD}` (2%)", places, missed)


def _published(workloads: Workloads) -> list[Verdict]:
    """The published comparison, of `adaptive`."""
    wanted: dict[str, Callable[[Mapping[str, Row]], float]] = {
        "P50 is 77% below random's or more": lambda rows: _gain(rows, "random", "p50") - 0.77,
        "P90 is 37% below random's or more": lambda rows: _gain(rows, "random", "p90") - 0.37,
        "hit rate is 78% or more": lambda rows: rows[ADAPTIVE]["hit_rate"] - 0.78,
        f"P99 is 45% below `{RING}`'s or more": lambda rows: _gain(rows, RING, "p99") - 0.45,
        f"P99 is 45% below `{TREE}`'s or more": lambda rows: _gain(rows, TREE, "p99") - 0.45,
        "busiest replica has 15.4% of the requests at most": lambda rows: 0.154 - rows[ADAPTIVE]["share_max"],
        "idlest replica has 13.3% of the requests or more": lambda rows: rows[ADAPTIVE]["share_min"] - 0.133,
    }
    found = []
    for target, margin in wanted.items():
        missed = []
        places = 0
        for load in LOADS:
            rows = rows_at(workloads.get("sagemaker", {}), load)
            if ADAPTIVE not in rows:
                continue
            places += 1
            short = margin(rows)
            if short < 0:
                missed.append(f"at {load:g}: short by {-100 * short:.1f} points")
        found.append(Verdict(f"`sagemaker`: `adaptive`'s {target}", places, missed))
    return found


def _gain(rows: Mapping[str, Row], baseline: str, percentile: str) -> float:
    gain: float = 1 - rows[ADAPTIVE]["ttft_ms"][percentile] / rows[baseline]["ttft_ms"][percentile]
    return gain


def _found_depth_hits(workloads: Workloads) -> Verdict:
    missed = []
    places = 0
    for name, workload in workloads.items():
        found = rows_at(workload, LENGTHS_LOAD).get(AUTO)
        if found is None or not workload.get("lengths"):
            continue
        places += 1
        best = max(workload["lengths"], key=lambda row: row["hit_rate"])
        part = found["hit_rate"] / best["hit_rate"] if best["hit_rate"] else 1.0
        if part < 0.95:
            busiest = f"whose busiest replica gets {best['share_max']:.0%}"
            missed.append(f"{name}: {part:.1%} of `{best['strategy']}`'s, {busiest}")
    return Verdict(f"`{AUTO}` hits 95% of what the ring hits with its best length or more", places, missed)


def _found_depth_spreads(workloads: Workloads) -> Verdict:
    missed = []
    places = 0
    for name, workload in workloads.items():
        for strategy, row in rows_at(workload, LENGTHS_LOAD).items():
            if strategy not in (AUTO, f"{RING}:auto"):
                continue
            places += 1
            share = row["share_max"] * REPLICAS
            if share > 1.5:
                missed.append(f"{name}, `{strategy}`: {share:.2f} times")
    return Verdict("with a found depth no replica gets more than 1.5 times an even share", places, missed)


def _overloaded(workloads: Workloads) -> Verdict:
    missed = []
    places = 0
    for name, workload in workloads.items():
        rows = rows_at(workload, OVERLOAD)
        for strategy in ("prefix_aware", ADAPTIVE):
            if RING not in rows or strategy not in rows:
                continue
            places += 1
            lost = rows[RING]["hit_rate"] - rows[strategy]["hit_rate"]
            if lost > 0.05:
                missed.append(f"{name}, `{strategy}`: {100 * lost:.1f} points below")
    return Verdict(f"at load {OVERLOAD:g} hit rates are within five points of `{RING}`'s", places, missed)


def _several_routers(workloads: Workloads) -> list[Verdict]:
    found = []
    for strategy, margin in ((AUTO, 0.01), (ADAPTIVE, 0.05)):
        missed = []
        places = 0
        for name, workload in workloads.items():
            for load in LOADS:
                one = rows_at(workload, load).get(strategy)
                many = rows_at(workload, load, ROUTERS).get(strategy)
                if one is None or many is None:
                    continue
                places += 1
                lost = one["hit_rate"] - many["hit_rate"]
                if lost > margin:
                    missed.append(f"{name} at {load:g}: {100 * lost:.1f} points lost")
        points = f"{100 * margin:.0f} point{'s' if margin > 0.01 else ''}"
        found.append(
            Verdict(f"behind {ROUTERS} routers `{strategy}` hits at most {points} less", places, missed)
        )
    return found


def _changes(workloads: Workloads) -> list[Verdict]:
    moved, late = [], []
    places = 0
    most = 1 / (REPLICAS + 1) + 0.03
    for name, workload in workloads.items():
        for row in workload.get("changes", ()):
            places += 1
            place = f"{name}, {row['change']}, `{row['strategy']}`"
            extra = row["moved_share"] - row["moved_share_if_nothing_happens"]
            if extra > most:
                moved.append(f"{place}: {extra:.1%}")
            if row["recovery_seconds"] is None or row["recovery_seconds"] > row["refill_seconds"]:
                late.append(f"{place}: {row['recovery_seconds'] or 'not in this run'}")
    return [
        Verdict(f"a change of the fleet moves {most:.1%} of the prefixes at most", places, moved),
        Verdict("hit rates recover in the time that fills a cache", places, late),
    ]
