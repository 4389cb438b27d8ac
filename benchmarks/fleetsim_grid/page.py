"""Writes the tables into the page of results, between two marks; the prose around them is written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.fleetsim_grid.cases import (
    ADAPTIVE,
    AUTO,
    LENGTHS,
    LENGTHS_LOAD,
    LOADS,
    OVERLOAD,
    REPLICAS,
    RING,
    ROUTERS,
    SEVERAL_ROUTERS,
    STRATEGIES,
)
from benchmarks.fleetsim_grid.targets import (
    HIT_RATE_MARGIN,
    PERCENTILES,
    TIME_MARGIN,
    Workloads,
    rows_at,
    verdicts,
)
from benchmarks.support.report import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Row = dict[str, Any]

BEGIN = "<!-- tables: written by `make bench-routing` -->"
END = "<!-- end of tables -->"
_NOTHING = "–"


def write_page(page: Path, document: Mapping[str, Any]) -> None:
    """Replace what stands between the marks of `page`. Raises ValueError when they are not there."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{tables(document)}\n\n{END}{after}")


def tables(document: Mapping[str, Any]) -> str:
    """All tables, as Markdown."""
    workloads: Workloads = document["workloads"]
    parts = ["## Targets", _targets(workloads)]
    parts += ["## Strategies", f"Measured on: {document.get('machine', 'unknown')}."]
    for name, workload in workloads.items():
        if workload.get("rows"):
            parts += [f"### {name}", _about(workload), _grid(workload)]
    parts += ["## Lengths picked by hand, and depths that are found", _lengths(workloads)]
    parts += ["## A replica joins, a replica leaves", _changes(workloads)]
    return "\n\n".join(parts)


def _targets(workloads: Workloads) -> str:
    rows = []
    for verdict in verdicts(workloads):
        met = verdict.places - len(verdict.missed)
        rows.append(
            (
                verdict.target,
                "met" if met == verdict.places else f"**{met} of {verdict.places}**",
                "; ".join(verdict.missed),
            )
        )
    return table(("target", "", "missed"), rows)


def _about(workload: Mapping[str, Any]) -> str:
    return (
        f"{workload['requests']:,} requests of {workload['mean_prompt_tokens']:,} prompt tokens on average; "
        f"with ideal caches {workload['ideal_hit_rate']:.1%} hit, and load 1 is "
        f"{workload['requests_per_second_at_load_1']:,.1f} requests a second."
    )


def _grid(workload: Mapping[str, Any]) -> str:
    """One table: strategies down, loads across."""
    titles = ["strategy"]
    loads = (*LOADS, OVERLOAD)
    for load in loads:
        titles += [f"{load:g}: hit", "P50 / P90 / P99 ms", "busiest"]
    one, many = ([rows_at(workload, load, routers) for load in loads] for routers in (1, ROUTERS))
    return table(
        titles,
        [
            *([f"`{strategy}`", *_cells(strategy, one)] for strategy in STRATEGIES),
            *([f"`{strategy}`, {ROUTERS} routers", *_cells(strategy, many)] for strategy in SEVERAL_ROUTERS),
        ],
    )


def _cells(strategy: str, columns: Iterable[Mapping[str, Row]]) -> list[str]:
    cells = []
    for rows in columns:
        row = rows.get(strategy)
        if row is None:
            cells += [_NOTHING] * 3
            continue
        judged = strategy == ADAPTIVE and row["routers"] == 1 and row["load"] in LOADS
        hit = f"{row['hit_rate']:.1%}"
        if judged and row["hit_rate"] < max(other["hit_rate"] for other in rows.values()) - HIT_RATE_MARGIN:
            hit = f"**{hit}**"
        times = []
        for percentile in PERCENTILES:
            time = row["ttft_ms"][percentile]
            lowest = min(other["ttft_ms"][percentile] for other in rows.values())
            written = f"{time:,.0f}"
            times.append(f"**{written}**" if judged and time > TIME_MARGIN * lowest else written)
        cells += [hit, " / ".join(times), f"{row['share_max']:.1%}"]
    return cells


def _lengths(workloads: Workloads) -> str:
    titles = [
        "workload",
        *(f"{tokens:,}" for tokens in LENGTHS),
        f"`{RING}:auto`",
        f"`{AUTO}`",
        "of the best",
    ]
    lines = []
    for name, workload in workloads.items():
        fixed = {row["strategy"]: row for row in workload.get("lengths", ())}
        found = rows_at(workload, LENGTHS_LOAD)
        if len(fixed) < len(LENGTHS) or AUTO not in found or f"{RING}:auto" not in found:
            continue
        best = max(row["hit_rate"] for row in fixed.values())
        rows = [fixed[f"{RING}:{tokens}"] for tokens in LENGTHS] + [found[f"{RING}:auto"], found[AUTO]]
        part = f"{found[AUTO]['hit_rate'] / best:.1%}" if best else _NOTHING
        lines.append(
            [name, *(f"{row['hit_rate']:.1%} ({row['share_max'] * REPLICAS:.2f})" for row in rows), part]
        )
    return (
        f"Hit rate of `{RING}` with keys of so many tokens at load {LENGTHS_LOAD:g}; in brackets how many "
        "times an even share the busiest replica gets.\n\n" + table(titles, lines)
    )


def _changes(workloads: Workloads) -> str:
    titles = (
        "workload",
        "change",
        "strategy",
        "moved",
        "… if nothing happens",
        "hit rate recovers after",
        "a cache fills in",
        "deepest loss",
    )
    lines = []
    for name, workload in workloads.items():
        for row in workload.get("changes", ()):
            recovery = row["recovery_seconds"]
            lines.append(
                (
                    name,
                    "7 → 8" if row["change"] == "join" else "8 → 7",
                    f"`{row['strategy']}`",
                    f"{row['moved_share']:.1%}",
                    f"{row['moved_share_if_nothing_happens']:.1%}",
                    _NOTHING if recovery is None else f"{recovery:.0f} s",
                    f"{row['refill_seconds']:.0f} s",
                    f"{100 * row['deepest_loss']:.1f} points",
                )
            )
    return table(titles, lines)
