"""What will happen, in the order of simulated time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Timeline:
    """A heap of planned calls. Those at the same instant happen in the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float, Any], None], Any]] = []
        self._planned = 0

    def plan(self, seconds: float, happen: Callable[[float, Any], None], what: object) -> None:
        """Call `happen(seconds, what)` when simulated time has come to `seconds`."""
        self._planned += 1
        heappush(self._heap, (seconds, self._planned, happen, what))

    def run(self) -> None:
        """Make everything happen, and what is planned meanwhile, until nothing is left."""
        heap = self._heap
        while heap:
            now, _, happen, what = heappop(heap)
            happen(now, what)
