"""The simulation as a whole. Times come from the profile of the engine; nothing here takes real time."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from random import Random

import pytest

from prefix_router.engine.cost import PROFILES, attention_pairs
from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.policies import POLICY_NAMES
from prefix_router.fleetsim.simulation import simulate
from prefix_router.routing.decision import Reason
from tests.support.simulated import assert_whole, replicas_of, simulated, traffic

LLAMA_70B = PROFILES["llama-3.1-70b-h100-tp8"]


def prefill_seconds(tokens: int, cached: int = 0) -> float:
    return LLAMA_70B.prefill_ms(tokens, attention_pairs(tokens, cached)) / 1e3


# Time.


def test_a_cold_prompt_of_8192_tokens_takes_the_measured_344_ms_and_the_overheads() -> None:
    plan = FleetPlan("plain_ring", router_overhead_seconds=0.002, api_overhead_seconds=0.015)
    (outcome,) = simulate([simulated(range(512), 5.0)], plan).outcomes
    assert outcome.first_token_seconds is not None
    assert outcome.first_token_seconds - 5.0 - 0.017 == pytest.approx(0.344, rel=0.01)
    assert outcome.end_seconds == outcome.first_token_seconds


def test_a_hit_takes_the_time_of_what_is_not_cached() -> None:
    requests = [simulated(range(500), 0.0), simulated([*range(500), *range(900, 940)], 10.0)]
    outcome = simulate(requests, FleetPlan("plain_ring", api_overhead_seconds=0.0)).outcomes[1]
    assert outcome.cached_tokens == 8000
    assert outcome.first_token_seconds == pytest.approx(10.0 + prefill_seconds(640, 8000))


def test_each_token_after_the_first_takes_a_step() -> None:
    plan = FleetPlan("plain_ring", api_overhead_seconds=0.0)
    (outcome,) = simulate([simulated(range(10), output=4)], plan).outcomes
    steps = sum(LLAMA_70B.decode_ms(1, tokens) for tokens in (161, 162, 163)) / 1e3
    assert outcome.first_token_seconds is not None
    assert outcome.end_seconds - outcome.first_token_seconds == pytest.approx(steps)


def test_a_request_waits_for_the_step_in_progress_and_not_longer() -> None:
    plan = FleetPlan("plain_ring", replicas=1, api_overhead_seconds=0.0)
    first, second = simulate([simulated(range(500)), simulated([900], 0.01)], plan).outcomes
    assert second.first_token_seconds == pytest.approx(
        prefill_seconds(8000) + LLAMA_70B.prefill_minimum_ms / 1e3
    )
    assert first.first_token_seconds == pytest.approx(prefill_seconds(8000))


def test_another_profile_has_another_speed() -> None:
    times = set()
    for profile in PROFILES:
        (outcome,) = simulate([simulated(range(100))], FleetPlan("random", profile=profile)).outcomes
        times.add(outcome.end_seconds)
    assert len(times) == len(PROFILES)


# Reuse.


def test_an_answer_is_reused_by_the_next_turn() -> None:
    first = simulated([1, 2, 3], prompt=40, output=30, output_blocks=[50, 51, 52])
    second = simulated([1, 2, 50, 51, 60], 10.0)
    outcomes = simulate([first, second], FleetPlan("random", replicas=1)).outcomes
    # 40 + 30 tokens were seen, the KV of 69 was computed: four full blocks.
    assert [outcome.cached_tokens for outcome in outcomes] == [0, 64]


def test_an_answer_without_ids_is_not_reused() -> None:
    requests = [simulated([1, 2, 3], prompt=40, output=30), simulated([1, 2, 50, 51, 60], 10.0)]
    outcomes = simulate(requests, FleetPlan("random", replicas=1)).outcomes
    assert outcomes[1].cached_tokens == 32


def test_the_same_id_behind_another_beginning_is_another_block() -> None:
    requests = [simulated([1, 7, 8]), simulated([2, 5], 10.0), simulated([2, 7, 8], 20.0)]
    outcomes = simulate(requests, FleetPlan("random", replicas=1)).outcomes
    assert outcomes[2].cached_tokens == 16


def test_models_share_nothing() -> None:
    requests = [simulated([1, 2, 3], 10.0 * n, model=model) for n, model in enumerate("aba")]
    outcomes = simulate(requests, FleetPlan("random", replicas=1)).outcomes
    assert [outcome.cached_tokens for outcome in outcomes] == [0, 0, 32]


def test_a_small_cache_evicts() -> None:
    requests = [simulated(range(start, start + 12), 10.0 * n) for n, start in enumerate((0, 100, 0))]
    kept, evicted = (
        simulate(requests, FleetPlan("random", replicas=1, kv_tokens=blocks * 16)).outcomes[2].cached_tokens
        for blocks in (30, 15)
    )
    assert (kept, evicted) == (11 * 16, 3 * 16)


# Strategies and routers.


@pytest.mark.parametrize("strategy", POLICY_NAMES)
def test_with_every_strategy_each_request_ends_once(strategy: str) -> None:
    requests = traffic(300)
    result = simulate(requests, FleetPlan(strategy, replicas=4))
    assert_whole(result, requests)
    assert not any(outcome.failed for outcome in result.outcomes)
    for outcome in result.outcomes:
        assert outcome.first_token_seconds is not None
        assert outcome.arrival_seconds < outcome.first_token_seconds < outcome.end_seconds


def test_affinity_hits_what_chance_does_not() -> None:
    requests = traffic(400, prefixes=40)
    hit_rates = {
        name: simulate(requests, FleetPlan(name)).hit_rate()
        for name in ("random", "plain_ring", "radix_tree")
    }
    assert hit_rates["plain_ring"] > hit_rates["random"] + 0.2
    assert hit_rates["radix_tree"] > hit_rates["random"] + 0.2


def test_a_threshold_moves_requests_away_from_a_busy_home() -> None:
    requests = [simulated([*range(100), 1000 + n], 0.001 * n, output=50) for n in range(60)]
    result = simulate(requests, FleetPlan("prefix_aware", concurrency_threshold=5))
    assert {outcome.reason for outcome in result.outcomes} >= {Reason.AFFINITY, Reason.OVERFLOW}
    assert result.row("burst", 1)["overflow_rate"] > 0
    assert len(replicas_of(result)) == 7


def test_a_session_stays_on_its_replica() -> None:
    requests = [simulated([n], 1.0 * n, session=f"s{n % 5}") for n in range(50)]
    result = simulate(requests, FleetPlan("session"))
    for session in range(5):
        assert len({outcome.replica for outcome in result.outcomes[session::5]}) == 1


def test_a_router_knows_only_its_own_requests() -> None:
    """Four routers that balance by what they know put some replica above the even share; one does not."""
    requests = [simulated([n], 0.0, output=200) for n in range(70)]
    one, four = (
        simulate(requests, FleetPlan("least_outstanding_requests", routers=routers)) for routers in (1, 4)
    )
    assert_whole(four, requests)
    assert one.row("burst", 1)["share_max"] == pytest.approx(10 / 70, abs=1e-4)
    assert four.row("burst", 1)["share_max"] > 10 / 70 + 0.01


def test_private_trees_of_several_routers_miss_where_a_ring_does_not() -> None:
    requests = traffic(400, prefixes=80)
    hit_rates = {
        (name, routers): simulate(requests, FleetPlan(name, routers=routers)).hit_rate()
        for name in ("plain_ring", "radix_tree")
        for routers in (1, 4)
    }
    assert hit_rates["plain_ring", 4] == pytest.approx(hit_rates["plain_ring", 1], abs=0.01)
    assert hit_rates["radix_tree", 4] < hit_rates["radix_tree", 1] - 0.1


# What the engine cannot do, and what it reports.


def test_a_request_that_can_never_fit_fails_at_once() -> None:
    requests = [simulated(range(30)), simulated(range(5))]
    result = simulate(requests, FleetPlan("random", replicas=1, kv_tokens=320))
    assert_whole(result, requests)
    assert [outcome.failed for outcome in result.outcomes] == [True, False]
    assert result.outcomes[0].end_seconds == pytest.approx(0.015)


def test_preemptions_are_counted() -> None:
    requests = [simulated(range(start, start + 8), output=160) for start in (0, 100)]
    assert simulate(requests, FleetPlan("random", replicas=1, kv_tokens=320)).preemptions > 0
    assert simulate(requests, FleetPlan("random", replicas=1)).preemptions == 0


def test_a_request_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="17 prompt tokens are 2 blocks, got 1"):
        simulate([simulated([1], prompt=17)], FleetPlan("random"))


def test_requests_may_be_given_in_any_order() -> None:
    requests = traffic(100)
    shuffled = Random(1).sample(requests, len(requests))
    in_order, mixed = (simulate(given, FleetPlan("prefix_aware")) for given in (requests, shuffled))
    assert_whole(mixed, shuffled)
    assert sorted(mixed.outcomes, key=lambda o: o.arrival_seconds) == list(in_order.outcomes)


def test_progress_is_told_now_and_then_up_to_the_end() -> None:
    told: list[float] = []
    simulate(traffic(250), FleetPlan("random"), told.append)
    assert len(told) == 100
    assert told[-1] == 1.0
    assert all(before < after for before, after in pairwise(told))


# Determinism.


def test_equal_runs_are_equal_and_another_seed_is_another_run() -> None:
    requests = traffic(200)
    first, second, other = (
        simulate(requests, FleetPlan("random", routers=3, seed=seed)).outcomes for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_another_hash_seed_gives_the_same_result(hash_seed: str) -> None:
    program = (
        "from prefix_router.fleetsim.plan import FleetPlan\n"
        "from prefix_router.fleetsim.policies import POLICY_NAMES\n"
        "from prefix_router.fleetsim.simulation import simulate\n"
        "from tests.support.simulated import traffic\n"
        "for name in POLICY_NAMES:\n"
        "    print(simulate(traffic(60), FleetPlan(name, routers=2)).row('traffic', 20))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [simulate(traffic(60), FleetPlan(name, routers=2)).row("traffic", 20) for name in POLICY_NAMES]
    assert answer.stdout.splitlines() == [str(row) for row in rows]
