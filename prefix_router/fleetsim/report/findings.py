"""What the rows say in a sentence: who is first how often, and by how much ahead of the baseline."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]

FAILED_SHARE_LIMIT = 0.05
"""Whoever fails this share of the requests more than another strategy cannot be the best: failing is fast."""


@dataclass(frozen=True, slots=True)
class Findings:
    """A leader, and how it compares.

    cells: pairs of workload and load. firsts: in how many of them a strategy has the lowest P90 time to first
    token; the most first, and those that never have it left out. changes: the median over the cells of
    leader / baseline - 1 for each percentile, empty when the leader is the baseline. hit_rates: the median
    over the cells of the baseline's and the leader's.
    """

    leader: str
    baseline: str
    cells: int
    firsts: dict[str, int]
    changes: dict[str, float]
    hit_rates: tuple[float, float]


def find(rows: Sequence[Row], baseline: str) -> Findings:
    """The findings of rows of which those of one workload and load stand together, `baseline` among them."""
    cells = [
        {row["strategy"]: row for row in group}
        for _, group in groupby(rows, key=lambda row: (row["workload"], row["load"]))
    ]
    counts = Counter(name for cell in cells for name in best(list(cell.values()), "ttft_ms", "p90"))
    firsts = dict(counts.most_common())
    leader = next(iter(firsts), baseline)
    changes = {}
    if leader != baseline:
        for percentile in ("p50", "p90", "p99"):
            ratios = [
                cell[leader]["ttft_ms"][percentile] / cell[baseline]["ttft_ms"][percentile]
                for cell in cells
                if cell[leader]["ttft_ms"][percentile] and cell[baseline]["ttft_ms"][percentile]
            ]
            if ratios:
                changes[percentile] = median(ratios) - 1
    return Findings(
        leader=leader,
        baseline=baseline,
        cells=len(cells),
        firsts=firsts,
        changes=changes,
        hit_rates=(
            median(cell[baseline]["hit_rate"] for cell in cells),
            median(cell[leader]["hit_rate"] for cell in cells),
        ),
    )


def best(rows: Sequence[Row], measure: str, percentile: str | None = None) -> set[str]:
    """The strategies with the best value among rows of one workload and load; several when they are equal.

    measure: `hit_rate` and `throughput_tokens_per_second`, where more is better, or a kind of times.
    """
    most_failed = min(row["failed"] for row in rows) + FAILED_SHARE_LIMIT * rows[0]["requests"]
    values: dict[str, float] = {}
    for row in rows:
        value = row[measure] if percentile is None else row[measure][percentile]
        if value is not None and row["failed"] <= most_failed:
            values[row["strategy"]] = value if percentile is not None else -value
    return {name for name, value in values.items() if value == min(values.values())}
