"""A bound on a wait that does not count the event loop's own lateness.

When thousands of connections are wanted at once, the loop is behind with everything: with its timers, and
with connections that were established long ago. A plain timeout then blames backends for what the router was
too slow to see, and they would be ejected for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_PUNCTUAL_SECONDS = 0.02
"""A timer that fires no later than this after its time was not held up."""

_MOST_EXTENSION = 2
"""The wait is extended to at most this many times its length more, however late the loop is."""


class Patience:
    """An async context manager: raises TimeoutError when its body takes longer than `seconds` (0: no bound).

    As long as the timer fires late, the wait goes on for as much as it was late.
    """

    __slots__ = ("_due", "_extension", "_loop", "_scope", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._extension = _MOST_EXTENSION * seconds
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Patience:
        await self._scope.__aenter__()
        if self._seconds > 0:
            self._loop = asyncio.get_running_loop()
            self._wait_for(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def _wait_for(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = min(self._loop.time() - self._due, self._extension)
        if late > _PUNCTUAL_SECONDS:
            self._extension -= late
            self._wait_for(late)
        else:
            self._timer = None
            self._scope.reschedule(self._loop.time())
