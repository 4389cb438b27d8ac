"""The driver on simulated time that runs a million times faster than the clock, so that nothing waits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from prefix_router.engine.cost import CostProfile
from prefix_router.engine.engine import Engine
from prefix_router.engine.request import EngineRequest, RequestStatus
from prefix_router.simulate.driver import TTFT_BUCKETS_SECONDS, EngineDriver
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROFILE = CostProfile("made up", 0.0, 1.0, 0.0, 0.0, 100.0, 0.0, 0.0, 16_000)
"""A millisecond for each prompt token, 100 ms for each step that only decodes."""

AT_ONCE = 1e6
NEVER = 1e-6


@asynccontextmanager
async def running(time_scale: float = AT_ONCE) -> AsyncIterator[EngineDriver]:
    driver = EngineDriver(Engine(PROFILE), time_scale)
    driver.start()
    try:
        yield driver
    finally:
        await driver.stop()


async def test_a_generation_completes() -> None:
    async with running() as driver:
        requests = [EngineRequest(10, 3), EngineRequest(20, 5)]
        generation = driver.submit(requests)
        assert driver.in_flight == 2
        await generation.complete()
        assert generation.finished
        assert [request.generated_tokens for request in requests] == [3, 5]
        assert driver.in_flight == 0


async def test_progress_returns_once_for_news_and_shows_all_of_it() -> None:
    async with running() as driver:
        request = EngineRequest(10, 4)
        generation = driver.submit([request])
        seen = [0]
        while not generation.finished:
            await generation.progress()
            seen.append(request.generated_tokens)
        assert seen[-1] == 4
        assert seen == sorted(set(seen))


async def test_first_token_times_are_simulated_and_do_not_depend_on_how_late_the_machine_is() -> None:
    async with running() as driver:
        # 5,000 + 5,000 tokens: 8,192 in the first step, the rest in the second, then no decoding between.
        requests = [EngineRequest(5000, 1), EngineRequest(5000, 1)]
        await driver.submit(requests).complete()
        assert driver.ttft_sum_seconds == pytest.approx(8.192 + 10.0, rel=1e-3)
        assert sum(driver.ttft_counts) == 2
        assert (
            driver.ttft_counts[TTFT_BUCKETS_SECONDS.index(10.0)]
            + driver.ttft_counts[TTFT_BUCKETS_SECONDS.index(20.0)]
            == 2
        )


async def test_an_engine_that_was_idle_starts_at_the_arrival() -> None:
    async with running() as driver:
        await driver.submit([EngineRequest(100, 1)]).complete()
        await asyncio.sleep(0.001)  # A thousand simulated seconds, in which nobody asks for anything.
        await driver.submit([EngineRequest(100, 1)]).complete()
        assert driver.ttft_sum_seconds == pytest.approx(0.2, rel=1e-3)


async def test_withdrawing_aborts_at_once_whatever_the_request_was_doing() -> None:
    async with running(NEVER) as driver:
        arrived = driver.submit([EngineRequest(10, 9)])
        driver.withdraw(arrived)
        assert driver.in_flight == 0

        computing = driver.submit([EngineRequest(10, 9)])
        await until(lambda: driver.engine.running)
        waiting = driver.submit([EngineRequest(10, 9)])
        assert (driver.engine.running, driver.waiting) == (1, 1)
        driver.withdraw(computing)
        driver.withdraw(waiting)
        assert driver.in_flight == 0
        assert driver.engine.kv_usage == 0.0


async def test_withdrawing_a_finished_generation_does_nothing() -> None:
    async with running() as driver:
        request = EngineRequest(10, 2)
        generation = driver.submit([request])
        await generation.complete()
        driver.withdraw(generation)
        assert request.status is RequestStatus.FINISHED
        assert driver.engine.counters.aborted_requests == 0


async def test_withdrawing_one_generation_leaves_the_others() -> None:
    async with running(NEVER) as driver:
        goes = driver.submit([EngineRequest(10, 9), EngineRequest(10, 9)])
        await until(lambda: driver.engine.running == 2)
        stays = driver.submit([EngineRequest(10, 9)])
        driver.withdraw(goes)
        assert driver.in_flight == 1
        assert not stays.finished


async def test_what_is_unfinished_when_the_driver_stops_fails() -> None:
    async with running(NEVER) as driver:
        generation = driver.submit([EngineRequest(10, 9)])
        await until(lambda: driver.engine.running)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        await generation.complete()


async def test_a_defect_in_the_engine_is_told_to_the_waiting_and_to_whoever_stops() -> None:
    driver = EngineDriver(Engine(PROFILE), AT_ONCE)
    driver.start()
    generation = driver.submit([EngineRequest(20_000, 1)])  # Larger than the cache: the engine refuses it.
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        await generation.complete()
    with pytest.raises(ValueError, match="KV blocks"):
        await driver.stop()


async def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    driver = EngineDriver(Engine(PROFILE))
    await driver.stop()
    driver.start()
    await driver.stop()
    await driver.stop()


@pytest.mark.parametrize("time_scale", [0.0, -1.0, float("nan")])
def test_time_must_run_forwards(time_scale: float) -> None:
    with pytest.raises(ValueError, match="time_scale"):
        EngineDriver(Engine(PROFILE), time_scale)
