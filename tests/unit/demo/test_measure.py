"""The load generator against stand-ins in the same process, without a router between them."""

from __future__ import annotations

import json

import aiohttp
import pytest

from prefix_router.demo.measure import Measurement, ask, encode, measure
from prefix_router.demo.processes import DemoError
from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings
from prefix_router.simulate.workloads import SharedPrefixWorkload

WORKLOAD = SharedPrefixWorkload(prefixes=2, prefix_tokens=160, question_tokens=16, requests_per_second=20)
FAST = StandInSettings(time_scale=100.0)


def measured(times: list[float]) -> Measurement:
    return Measurement(0.0, sorted(times), {}, {})


@pytest.mark.parametrize(("percent", "value"), [(50, 5.0), (90, 9.0), (99, 10.0), (100, 10.0), (1, 1.0)])
def test_a_percentile_is_a_time_that_was_measured(percent: float, value: float) -> None:
    assert measured([float(time) for time in range(1, 11)]).percentile(percent) == value


def test_a_percentile_of_one_request_is_its_time() -> None:
    assert measured([7.0]).percentile(50) == measured([7.0]).percentile(99) == 7.0


def test_requests_are_encoded_for_the_wall_clock() -> None:
    arrivals = list(WORKLOAD.arrivals())
    encoded = encode(arrivals, time_scale=4)
    assert [one.seconds for one in encoded] == [arrival.seconds / 4 for arrival in arrivals]
    assert [json.loads(one.body) for one in encoded] == [arrival.body for arrival in arrivals]


async def test_a_measurement_counts_from_cold_caches_every_time() -> None:
    arrivals = encode(WORKLOAD.arrivals(), 100.0)
    async with SimulatedVllm(FAST) as replica, aiohttp.ClientSession() as session:
        first = await measure(session, replica.url, [replica.url], arrivals, 100.0)
        second = await measure(session, replica.url, [replica.url], arrivals, 100.0)
    for result in (first, second):
        assert len(result.ttft_ms) == WORKLOAD.requests
        assert result.ttft_ms == sorted(result.ttft_ms)
        assert result.ttft_ms[0] > 0
        assert 0 < result.hit_rate <= WORKLOAD.ideal_hit_rate
        assert result.share == {"unknown": 1.0}


async def test_counters_of_all_replicas_are_added_up() -> None:
    arrivals = encode(WORKLOAD.arrivals(), 100.0)
    async with SimulatedVllm(FAST) as one, SimulatedVllm(FAST) as idle, aiohttp.ClientSession() as session:
        alone = await measure(session, one.url, [one.url, idle.url], arrivals, 100.0)
        other = await measure(session, one.url, [idle.url], arrivals, 100.0)
    assert alone.hit_rate > 0
    assert other.hit_rate == 0.0


async def test_a_request_that_is_refused_is_an_error() -> None:
    async with SimulatedVllm(FAST) as replica, aiohttp.ClientSession() as session:
        with pytest.raises(DemoError, match="status 404"):
            await ask(session, replica.url, b'{"model": "unheard-of", "messages": [{"role": "user"}]}')


async def test_a_workload_with_a_failing_request_is_one_error() -> None:
    workload = SharedPrefixWorkload(prefixes=2, prefix_tokens=9, requests_per_second=1000, model="unheard-of")
    arrivals = encode(workload.arrivals(), 100.0)
    async with SimulatedVllm(FAST) as replica, aiohttp.ClientSession() as session:
        with pytest.raises(DemoError, match="status 404"):
            await measure(session, replica.url, [replica.url], arrivals, 100.0)


async def test_a_backend_that_is_not_there_is_an_error() -> None:
    async with SimulatedVllm(FAST) as replica:
        gone = replica.url
    async with aiohttp.ClientSession() as session:
        with pytest.raises(DemoError, match="a request failed"):
            await ask(session, gone, b"{}")
