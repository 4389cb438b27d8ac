"""Percentiles, medians, and ratios that are taken round by round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of them lie (nearest rank), 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of those that are there, None of none."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def median_ratio(theirs: Mapping[int, float | None], ours: Mapping[int, float | None]) -> float | None:
    """Return the median over rounds of theirs / ours, None when no round has both.

    A ratio within a round is untouched by a machine that is slower in another one.
    """
    ratios = []
    for number, value in theirs.items():
        base = ours.get(number)
        if value is not None and base:
            ratios.append(value / base)
    return median(ratios)
