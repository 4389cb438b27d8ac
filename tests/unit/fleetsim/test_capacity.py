from __future__ import annotations

from random import Random

import pytest

from prefix_router.engine.cost import PROFILES, CostProfile
from prefix_router.engine.limits import EngineLimits
from prefix_router.fleetsim.capacity import at_rate, ideal_work
from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.simulation import simulate
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload
from tests.support.simulated import simulated

PLAIN = CostProfile(
    "plain",
    prefill_base_ms=0,
    prefill_ms_per_token=1,
    prefill_ms_per_pair=0,
    prefill_minimum_ms=0,
    decode_base_ms=0,
    decode_ms_per_sequence=0,
    decode_ms_per_kv_token=0,
    kv_tokens=1_000_000,
)
"""A millisecond for each computed token, and nothing else costs anything."""


def capacity(profile: CostProfile, requests: list[SimulatedRequest], replicas: int = 1) -> float:
    return ideal_work(requests).capacity(profile, replicas)


# What an ideal cache leaves to compute.


def test_each_block_is_computed_once_whoever_asks() -> None:
    work = ideal_work([simulated([1, 2, 3]), simulated([1, 2, 4]), simulated([1, 2, 4, 5])])
    assert (work.requests, work.prompt_tokens) == (3, 160)
    assert work.computed_tokens == 48 + 16 + 16
    assert work.hit_rate == pytest.approx(0.5)
    assert work.pairs == 48 * 24 + 16 * (8 + 32) + 16 * (8 + 48)


def test_the_last_token_of_a_prompt_and_its_block_are_computed_always() -> None:
    assert ideal_work([simulated([1, 2])] * 2).computed_tokens == 32 + 16


def test_a_partial_block_is_nobody_elses() -> None:
    work = ideal_work([simulated([1, 2], prompt=20), simulated([1, 2, 3], prompt=40)])
    assert work.computed_tokens == 20 + 24


def test_an_answer_is_found_in_the_prompt_of_the_next_turn() -> None:
    first = simulated([1, 2], output=32, output_blocks=[3, 4])
    assert ideal_work([first, simulated([1, 2, 3, 4, 5])]).computed_tokens == 32 + 16


def test_the_tokens_behind_the_first_attend_to_all_before() -> None:
    work = ideal_work([simulated([1], output=4)])
    assert work.decoded_tokens == 3
    assert work.attended_tokens == 17 + 18 + 19
    assert work.resident_tokens == 18


# The rate.


def test_where_only_prefill_costs_the_rate_is_that_of_the_computed_tokens() -> None:
    requests = [simulated([1, 2]), simulated([1, 3])]  # 32 and 16 tokens: 48 ms
    assert capacity(PLAIN, requests) == pytest.approx(2 / 0.048, rel=1e-6)


def test_twice_the_replicas_take_twice_the_requests() -> None:
    requests = generate(parse_workload("mix"), 200, 1)
    profile = PROFILES["llama-3.1-70b-h100-tp8"]
    assert capacity(profile, requests, 8) == pytest.approx(2 * capacity(profile, requests, 4))


def test_a_constant_for_each_step_is_shared_by_as_many_sequences_as_run() -> None:
    requests = [simulated([number], output=1001) for number in range(100)]
    profile = CostProfile("steps", 0, 0, 0, 0, 10.0, 0, 0, kv_tokens=10**9)
    for sequences in (10, 50):
        limits = EngineLimits(max_sequences=sequences)
        steps = 100 * 1000 / sequences
        assert ideal_work(requests).capacity(profile, 1, limits) == pytest.approx(100 / (steps * 0.01))


def test_a_small_cache_lets_fewer_run() -> None:
    requests = [simulated([number], output=1001) for number in range(100)]
    large = CostProfile("large", 0, 0, 0, 0, 10.0, 0, 0, kv_tokens=10**9)
    small = CostProfile("small", 0, 0, 0, 0, 10.0, 0, 0, kv_tokens=10_000)
    assert capacity(small, requests) < capacity(large, requests) / 10


def test_requests_with_less_in_common_are_taken_at_a_lower_rate() -> None:
    profile = PROFILES["llama-3.1-70b-h100-tp8"]
    often, once = (generate(parse_workload(f"sagemaker:uses={uses}"), 200, 1) for uses in (5, 1))
    assert capacity(profile, often) > 2 * capacity(profile, once)


@pytest.mark.parametrize("workload", ["sagemaker", "documents", "unique"])
def test_one_engine_just_keeps_up_with_its_capacity(workload: str) -> None:
    """Where routing cannot matter, all requests are done in little more than the time that the capacity says.

    More, because some come while their beginning is still being computed, and the last ones run alone.
    """
    requests = generate(parse_workload(workload), 600, 1)
    rate = capacity(PROFILES["llama-3.1-70b-h100-tp8"], requests)
    result = simulate(at_rate(requests, rate), FleetPlan("random", replicas=1))
    seconds = max(outcome.end_seconds for outcome in result.outcomes)
    assert 0.9 < seconds / (600 / rate) < 1.5


# Arrivals.


def test_time_is_stretched_to_the_rate_and_starts_at_nought() -> None:
    requests = [simulated([1], seconds) for seconds in (3.0, 4.0, 9.0)]
    assert [request.arrival_seconds for request in at_rate(requests, 0.5)] == pytest.approx([0, 2 / 3, 4])


def test_nothing_but_the_arrival_changes() -> None:
    requests = generate(parse_workload("chat"), 50, 1)
    for before, after in zip(requests, at_rate(requests, Random(1).random()), strict=True):
        assert after._replace(arrival_seconds=before.arrival_seconds) == before


def test_requests_that_come_at_once_and_single_ones_stay_so() -> None:
    at_once = at_rate([simulated([1], 5.0), simulated([2], 5.0)], 3.0)
    assert [request.arrival_seconds for request in at_once] == [0, 0]
    assert at_rate([simulated([1], 5.0)], 3.0)[0].arrival_seconds == 0
