"""By when something must have come, for one connection and all its exchanges.

There is one timer, moved lazily: it looks up the deadline when it fires. So to wait costs two assignments,
and thousands of pieces of a stream set it a few times. A deadline that has passed gets one more pass of the
event loop: what has arrived while the loop was busy is read before time is up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

_LAST_CHANCE_SECONDS = 0.001


class Deadline:
    """Calls `missed` with the seconds that were waited for. at: loop time in seconds, `inf` for none."""

    __slots__ = ("_last_chance", "_loop", "_missed", "_seconds", "_timer", "_timer_at", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, missed: Callable[[float], None]) -> None:
        self._loop = loop
        self._missed = missed
        self.at = math.inf
        self._seconds = 0.0
        self._last_chance = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def expect(self, seconds: float) -> None:
        """Something must come within `seconds`; 0 for no bound."""
        if seconds <= 0:
            self.at = math.inf
            return
        self._seconds = seconds
        at = self.at = self._loop.time() + seconds
        if self._timer_at > at:
            self._look(at)

    def extend(self) -> None:
        """Something came: as long again, if there is a deadline."""
        if self.at != math.inf:
            self.at = self._loop.time() + self._seconds

    def lift(self) -> None:
        """Nothing is waited for."""
        self.at = math.inf

    def close(self) -> None:
        """Let go of the timer; there are no more deadlines."""
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fired)
        self._timer_at = when

    def _fired(self) -> None:
        self._timer, self._timer_at = None, math.inf
        at = self.at
        if at == math.inf:
            return
        now = self._loop.time()
        if now < at:
            self._look(at)
        elif self._last_chance != at:
            self._last_chance = at
            self._look(now + _LAST_CHANCE_SECONDS)
        else:
            self._missed(self._seconds)
