"""Runs an engine in real time: one task that steps, sleeps for as long as the step took, and tells.

Simulated time runs `time_scale` times faster than the wall clock. The driver keeps a simulated clock that
only durations of steps and arrivals move, and sleeps until the wall clock has caught up with it; it never
adds sleeps up. So a sleep that overshoots makes the next one shorter, and what the engine does depends on
when requests arrive and on nothing else about this machine. A request that arrives while the driver is late
joins at its own time, not at the delayed one.

One task, no locks: everything happens between two awaits. The engine's requests hold their `Generation`,
which wakes its handler; a handler that has not kept up finds several tokens at once, so nothing queues.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from prefix_router.engine.request import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.engine.engine import Engine
    from prefix_router.engine.request import EngineRequest
    from prefix_router.engine.step import StepResult

TTFT_BUCKETS_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Upper bounds of vLLM's own time-to-first-token histogram."""


class Generation:
    """What one HTTP request has in the engine: one engine request for each answer it wants."""

    def __init__(self, requests: Sequence[EngineRequest], arrived_seconds: float) -> None:
        self.requests = requests
        self.arrived_seconds = arrived_seconds
        self._unfinished = len(requests)
        self._news = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def finished(self) -> bool:
        """Whether all answers are complete."""
        return not self._unfinished

    async def progress(self) -> None:
        """Wait until there is a token that was not there when this last returned.

        Raises RuntimeError when the engine has stopped and there will be none.
        """
        await self._news.wait()
        self._news.clear()
        if self._failure is not None and not self.finished:
            raise RuntimeError("the engine has stopped") from self._failure

    async def complete(self) -> None:
        """Wait until all answers are complete. Raises as `progress` does."""
        while not self.finished:
            await self.progress()

    def tell(self, *, finished: bool = False) -> None:
        """Wake the handler: one of the answers has grown, or is complete."""
        self._unfinished -= finished
        self._news.set()

    def fail(self, failure: BaseException) -> None:
        """Wake the handler to tell it that nothing will come."""
        self._failure = failure
        self._news.set()


class EngineDriver:
    """Drives `engine` at `time_scale` simulated seconds per second of wall clock."""

    def __init__(self, engine: Engine, time_scale: float = 1.0) -> None:
        if not time_scale > 0:
            raise ValueError(f"time_scale must be positive, got {time_scale}")
        self.engine = engine
        self.time_scale = time_scale
        self.ttft_counts = [0] * (len(TTFT_BUCKETS_SECONDS) + 1)
        self.ttft_sum_seconds = 0.0
        self._arrivals: deque[EngineRequest] = deque()
        self._generations: set[Generation] = set()
        self._work = asyncio.Event()
        self._started_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Requests submitted and not yet ended, running or waiting."""
        return self.engine.running + self.engine.waiting + len(self._arrivals)

    @property
    def waiting(self) -> int:
        """Requests that hold no blocks yet."""
        return self.engine.waiting + len(self._arrivals)

    def start(self) -> None:
        """Start the task. The simulated clock starts at zero."""
        self._started_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name="engine-driver")

    async def stop(self) -> None:
        """Stop the task; generations that are not finished fail."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()  # It ended by itself, which only a defect can make it do: say so.

    def submit(self, requests: Sequence[EngineRequest]) -> Generation:
        """Hand requests to the engine; they arrive now. Pair with `withdraw` on every exit path."""
        generation = Generation(requests, self._now_seconds())
        for request in requests:
            request.context = generation
        self._arrivals.extend(requests)
        self._generations.add(generation)
        self._work.set()
        return generation

    def withdraw(self, generation: Generation) -> None:
        """Abort at once what is left of a generation; nothing happens when it is finished."""
        self._generations.discard(generation)
        for request in generation.requests:
            if request in self._arrivals:
                self._arrivals.remove(request)
            else:
                self.engine.abort(request)

    async def _run(self) -> None:
        try:
            await self._drive()
        except BaseException as failure:
            for generation in self._generations:
                generation.fail(failure)
            raise

    async def _drive(self) -> None:
        engine = self.engine
        clock_seconds = 0.0
        while True:
            if not engine.has_work:
                while not self._arrivals:
                    self._work.clear()
                    await self._work.wait()
                clock_seconds = max(clock_seconds, _arrived(self._arrivals[0]))
            while self._arrivals and _arrived(self._arrivals[0]) <= clock_seconds:
                engine.add(self._arrivals.popleft())
            duration_seconds = engine.start_step()
            if duration_seconds is None:
                continue
            clock_seconds += duration_seconds
            ahead_seconds = clock_seconds - self._now_seconds()
            await asyncio.sleep(max(ahead_seconds, 0.0) / self.time_scale)
            self._tell(engine.finish_step(), clock_seconds)

    def _tell(self, result: StepResult, clock_seconds: float) -> None:
        for request in result.first_tokens:
            seconds = clock_seconds - _arrived(request)
            self.ttft_counts[bisect_left(TTFT_BUCKETS_SECONDS, seconds)] += 1
            self.ttft_sum_seconds += seconds
        for request in result.advanced:
            _generation(request).tell(finished=request.status is RequestStatus.FINISHED)

    def _now_seconds(self) -> float:
        return (asyncio.get_running_loop().time() - self._started_at) * self.time_scale


def _generation(request: EngineRequest) -> Generation:
    assert isinstance(request.context, Generation)
    return request.context


def _arrived(request: EngineRequest) -> float:
    return _generation(request).arrived_seconds
