"""Long computations in the event loop, by turns with everything else.

A computation is a generator that yields whenever it may be interrupted. Each gets a turn of a millisecond,
and all computations together get one turn in each pass of the loop: ten large bodies that arrive at once take
ten times as long, and hold up other requests no longer than one does.

A thread would not do: what is computed here holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

TURN_SECONDS = 0.001

T = TypeVar("T")


class TurnTaker:
    """Runs computations, one at a time and each a turn at a time, in the order in which they came."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: seconds."""
        self._clock = clock
        self._turn = asyncio.Lock()

    async def finish(self, steps: Generator[object, None, T]) -> T:
        """Return what `steps` returns. Cancelled, it is closed and leaves the turn to the next."""
        try:
            while True:
                async with self._turn:
                    end = self._clock() + TURN_SECONDS
                    while self._clock() < end:
                        next(steps)
                    await asyncio.sleep(0)  # before the next one's turn, not after it
        except StopIteration as end_of_steps:
            value: T = end_of_steps.value
            return value
        finally:
            steps.close()
