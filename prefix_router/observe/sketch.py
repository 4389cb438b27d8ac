"""Quantiles of durations in little memory: counts in fixed logarithmic buckets.

The buckets are the same everywhere, so two sketches are merged by adding their counts: that is how five
minutes, or a whole fleet, are made of slots. Each bucket is wider than the one below by the factor 2 ** 0.25,
so a quantile is at most 9 percent off within 1 ms … 120 s; what lies outside counts in the first or last
bucket. Pure; adding is O(1), a quantile O(buckets).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import log2
from typing import Final, TypeAlias

PER_DOUBLING: Final = 4
LOWEST_SECONDS: Final = 0.001
BUCKETS: Final = 68
"""Up to 2 ** (68 / 4) ms, that is 131 s."""

QUANTILES: Final = (0.5, 0.9, 0.99)

Sketch: TypeAlias = "array[int]"
"""A count for each bucket, four bytes each."""


def new_sketch() -> Sketch:
    """Return an empty one."""
    return array("I", bytes(4 * BUCKETS))


def bucket_of(seconds: float) -> int:
    """Return the index of the bucket that counts a duration."""
    if seconds <= LOWEST_SECONDS:
        return 0
    return min(int(log2(seconds / LOWEST_SECONDS) * PER_DOUBLING), BUCKETS - 1)


def merged(sketches: Iterable[Sketch]) -> Sequence[int]:
    """Return the counts of all of them together."""
    return [sum(counts) for counts in zip(*sketches, strict=True)] or new_sketch()


def quantiles(counts: Sequence[int]) -> tuple[float, ...] | None:
    """Return `QUANTILES` in seconds, each as the middle of its bucket; None when nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    found: list[float] = []
    below = 0
    for bucket, count in enumerate(counts):
        below += count
        while len(found) < len(QUANTILES) and below >= QUANTILES[len(found)] * total:
            found.append(round(LOWEST_SECONDS * 2 ** ((bucket + 0.5) / PER_DOUBLING), 5))
    return tuple(found)
