from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from prefix_router.proxy.front_door import FrontDoor
from prefix_router.proxy.handler import Handler
from prefix_router.shutdown import drain, stop_unless_hurried


class Time:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class DataPort:
    """Requests that end at a given time, and a client that is slow to take its bytes."""

    def __init__(self, time: Time, ends_at: float) -> None:
        self._time = time
        self._ends_at = ends_at
        self.closing = False
        self.flush_seconds: float | None = None

    @property
    def active(self) -> int:
        return 2 if self._time.now < self._ends_at else 0

    async def drained(self, seconds: float) -> bool:
        self._time.now = min(self._time.now + seconds, max(self._ends_at, self._time.now))
        return not self.active

    async def flushed(self, seconds: float) -> bool:
        self.flush_seconds = seconds
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()

    async def sleep(seconds: float) -> None:
        made.now += seconds

    monkeypatch.setattr("prefix_router.shutdown.asyncio.sleep", sleep)
    return made


async def drained(
    time: Time, ends_at: float, stop_listening: Callable[[], None] = lambda: None, **options: Any
) -> DataPort:
    port = DataPort(time, ends_at)
    handler, front_door = cast(Handler, port), cast(FrontDoor, port)
    await drain(handler, front_door, stop_listening, clock=time, **options)
    return port


async def test_new_connections_are_taken_for_a_while_and_the_grace_begins_after_it(time: Time) -> None:
    stopped_at: list[float] = []
    port = await drained(
        time, 0.0, lambda: stopped_at.append(time.now), delay_seconds=5.0, grace_seconds=30.0
    )
    assert stopped_at == [105.0]
    assert port.closing
    assert port.flush_seconds == 30.0


async def test_what_still_runs_is_said_every_few_seconds(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        port = await drained(time, 112.0, delay_seconds=0.0, grace_seconds=30.0)
    assert [record.getMessage() for record in caplog.records] == [
        "draining: 2 requests running, at most 25 s more",
        "draining: 2 requests running, at most 20 s more",
    ]
    assert port.flush_seconds == 18.0


async def test_it_is_bounded_and_says_what_is_cut(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        port = await drained(time, 1000.0, delay_seconds=0.0, grace_seconds=7.0)
    assert time.now == 107.0
    assert [record.getMessage() for record in caplog.records] == ["draining: 2 requests are cut after 7 s"]
    assert port.flush_seconds is None


async def test_without_grace_nothing_is_waited_for(time: Time) -> None:
    await drained(time, 1000.0, delay_seconds=0.0, grace_seconds=0.0)
    assert time.now == 100.0


class Stopping:
    """Something that stops in its own time, or at once when it is given none."""

    def __init__(self) -> None:
        self.told: list[tuple[float, float]] = []
        self.may_end = asyncio.Event()
        self.broken_off = False

    async def __call__(self, grace_seconds: float, delay_seconds: float) -> None:
        self.told.append((grace_seconds, delay_seconds))
        if grace_seconds:
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.broken_off = True
                raise


async def test_a_stop_that_nobody_hurries_is_left_alone() -> None:
    stop = Stopping()
    stop.may_end.set()
    await stop_unless_hurried(stop, 30, 5, asyncio.Event())
    assert (stop.told, stop.broken_off) == ([(30, 5)], False)


async def test_a_stop_that_is_hurried_is_broken_off_and_done_without_patience() -> None:
    stop, hurry = Stopping(), asyncio.Event()
    stopping = asyncio.ensure_future(stop_unless_hurried(stop, 30, 5, hurry))
    while not stop.told:
        await asyncio.wait([stopping], timeout=0)
    hurry.set()
    await stopping
    assert (stop.told, stop.broken_off) == ([(30, 5), (0, 0)], True)


async def test_a_stop_that_fails_says_so() -> None:
    async def stop(grace_seconds: float, delay_seconds: float) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await stop_unless_hurried(stop, 1, 0, asyncio.Event())
