"""The results as text."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.fleetsim.command.scenario import Facts

Row = dict[str, Any]

_HEADER = (
    "hit rate",
    "TTFT P50",
    "P90",
    "P99 ms",
    "E2E P50",
    "P90",
    "P99 ms",
    "busiest",
    "overflow",
    "tokens/s",
    "failed",
)


def as_table(facts: Facts, rows: Iterable[Row]) -> str:
    """The rows of one workload, those of each load together."""
    headline = (
        f"{facts.label}: {facts.requests:,} requests; with ideal caches {facts.ideal_hit_rate:.1%} "
        f"of the prompt tokens hit and the fleet takes {facts.capacity:.1f} requests a second"
    )
    parts = [headline]
    width = 0
    groups = []
    for load, group in groupby(rows, key=lambda row: row["load"]):
        members = list(group)
        title = f"load {load:g} ({members[0]['requests_per_second']:.1f}/s)"
        width = max(width, len(title), *(len(row["strategy"]) for row in members))
        groups.append((title, members))
    for title, members in groups:
        parts += ["", _line(title, _HEADER, width)]
        parts += [_line(row["strategy"], _cells(row), width) for row in members]
    return "\n".join(parts)


def _cells(row: Row) -> list[str]:
    times = [row[kind][percentile] for kind in ("ttft_ms", "e2e_ms") for percentile in ("p50", "p90", "p99")]
    return [
        f"{row['hit_rate']:.1%}",
        *("-" if time is None else f"{time:,.0f}" for time in times),
        f"{row['share_max']:.1%}",
        f"{row['overflow_rate']:.1%}",
        f"{row['throughput_tokens_per_second']:,.0f}",
        str(row["failed"]),
    ]


def _line(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells)
