"""What the workloads draw at random: times of arrival and lengths."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


def poisson(random: Random, per_second: float = 1.0) -> Iterator[float]:
    """Seconds of arrival, without end: independent requests at a constant mean rate."""
    seconds = 0.0
    while True:
        seconds += random.expovariate(per_second)
        yield seconds


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths or pauses: half are below `median`; `sigma` is the spread of their logarithm."""

    median: float
    sigma: float

    @property
    def mean(self) -> float:
        """The average of many."""
        return self.median * exp(self.sigma**2 / 2)

    def draw(self, random: Random) -> float:
        """A value above 0."""
        return self.median * random.lognormvariate(0.0, self.sigma)

    def tokens(self, random: Random, most: int | None = None) -> int:
        """A whole number of at least 1 and, where that is given, at most `most`."""
        value = max(round(self.draw(random)), 1)
        return value if most is None else min(value, most)
