"""What the strategy `adaptive` and depths that are found do in a simulation."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.capacity import at_rate, ideal_work
from prefix_router.fleetsim.plan import FleetChange, FleetEvent, FleetPlan
from prefix_router.fleetsim.policy import StrategyPolicy
from prefix_router.fleetsim.simulation import simulate
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload
from prefix_router.routing.decision import Reason
from prefix_router.routing.strategies import build_strategy
from tests.support.simulated import assert_whole, replicas_of, traffic

if TYPE_CHECKING:
    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.result import FleetResult

JOIN, LEAVE, RESTART = FleetChange.JOIN, FleetChange.LEAVE, FleetChange.RESTART


@cache
def workload(name: str, count: int, load: float) -> tuple[SimulatedRequest, ...]:
    """Requests at a share of what seven replicas could take."""
    requests = generate(parse_workload(name), count, 1)
    capacity = ideal_work(requests).capacity(PROFILES[DEFAULT_PROFILE], 7)
    return tuple(at_rate(requests, load * capacity))


@cache
def sagemaker(strategy: str, *, auto: bool = False, routers: int = 1) -> FleetResult:
    return simulate(workload("sagemaker", 1200, 0.7), FleetPlan(strategy, depth_auto=auto, routers=routers))


def p99(result: FleetResult) -> float:
    milliseconds: float = result.row("", 0)["ttft_ms"]["p99"]
    return milliseconds


def test_adaptive_hits_what_chance_does_not_and_is_never_far_from_the_ring() -> None:
    hit_rates = {name: sagemaker(name).hit_rate() for name in ("random", "plain_ring", "adaptive")}
    assert hit_rates["adaptive"] > hit_rates["random"] + 0.4
    assert hit_rates["adaptive"] > hit_rates["plain_ring"] - 0.01


@pytest.mark.parametrize("other", ["plain_ring", "radix_tree"])
def test_adaptive_has_a_much_shorter_tail_than_those_that_only_look_at_prefixes(other: str) -> None:
    assert p99(sagemaker("adaptive")) < 0.75 * p99(sagemaker(other))


def test_adaptive_spreads_what_shares_nothing_like_a_strategy_that_looks_at_load() -> None:
    requests = workload("unique", 1200, 0.7)
    adaptive, by_load, ring = (
        simulate(requests, FleetPlan(name))
        for name in ("adaptive", "least_outstanding_requests", "plain_ring")
    )
    assert p99(adaptive) <= 1.02 * p99(by_load)
    assert p99(adaptive) < 0.8 * p99(ring)


def test_equal_runs_are_equal() -> None:
    requests = workload("sagemaker", 300, 0.7)
    plan = FleetPlan("adaptive", routers=3)
    assert simulate(requests, plan).outcomes == simulate(requests, plan).outcomes


def test_its_decisions_have_its_reasons() -> None:
    reasons = {outcome.reason for outcome in sagemaker("adaptive").outcomes}
    assert {Reason.PLACED, Reason.AFFINITY} <= reasons


def test_several_routers_that_know_of_each_other_send_prefixes_home() -> None:
    """Each sees an eighth of the requests, and yet most of what is cached is found."""
    assert sagemaker("adaptive", routers=8).hit_rate() > sagemaker("adaptive").hit_rate() - 0.1
    assert sagemaker("radix_tree", routers=8).hit_rate() < sagemaker("radix_tree").hit_rate() - 0.2


def test_each_router_is_told_whether_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def build(name: str, threshold: int, *, several_routers: bool) -> StrategyPolicy:
        told.append(several_routers)
        return StrategyPolicy(build_strategy(name, threshold, several_routers=several_routers))

    monkeypatch.setattr("prefix_router.fleetsim.simulation.build_policy", build)
    simulate([], FleetPlan("adaptive"))
    simulate([], FleetPlan("adaptive", routers=2))
    assert told == [False, True, True]


def test_no_visit_outlives_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    policies: list[StrategyPolicy] = []

    def build(name: str, threshold: int, **settings: Any) -> StrategyPolicy:
        policies.append(StrategyPolicy(build_strategy(name, threshold, **settings)))
        return policies[-1]

    monkeypatch.setattr("prefix_router.fleetsim.simulation.build_policy", build)
    requests = traffic(300)
    middle = requests[150].arrival_seconds
    events = (
        FleetEvent(middle, RESTART, 0),
        FleetEvent(middle, LEAVE, 1),
        FleetEvent(middle + 1, JOIN, 1),
    )
    result = simulate(requests, FleetPlan("adaptive", replicas=3, routers=4, events=events))
    assert_whole(result, requests)
    assert len(policies) == 4
    assert [policy.followed_count for policy in policies] == [0, 0, 0, 0]


@pytest.mark.parametrize("strategy", ["adaptive", "prefix_aware"])
def test_who_joins_is_used_and_who_leaves_is_not(strategy: str) -> None:
    requests = traffic(1500, prefixes=300)
    middle = requests[300].arrival_seconds
    events = (FleetEvent(middle, JOIN, 3), FleetEvent(middle, LEAVE, 0))
    plan = FleetPlan(strategy, replicas=3, events=events, depth_auto=True)
    result = simulate(requests, plan)
    assert_whole(result, requests)
    assert not any(outcome.failed for outcome in result.outcomes)
    assert replicas_of(result, start=middle + 1e-9) == {"replica-1", "replica-2", "replica-3"}


def test_after_a_restart_prefixes_are_found_again() -> None:
    """Who has lost its cache is not believed to have it: what it had is spread, and then found."""
    requests = traffic(900, prefixes=30)
    middle = requests[300].arrival_seconds
    plan = FleetPlan("adaptive", replicas=3, events=(FleetEvent(middle, RESTART, 0),))
    result = simulate(requests, plan)
    assert_whole(result, requests)
    late = result.outcomes[600:]
    assert sum(o.cached_tokens for o in late) / sum(o.prompt_tokens for o in late) > 0.9


# Depths that are found.


def test_a_depth_that_is_found_gets_past_what_all_have_in_common() -> None:
    """All `documents` begin with the same 2,000 tokens: a shorter key sends them all to one replica."""
    requests = workload("documents", 700, 0.4)
    fixed = simulate(requests, FleetPlan("plain_ring", prefix_tokens=1024))
    found = simulate(requests, FleetPlan("plain_ring", depth_auto=True))
    assert len(replicas_of(fixed)) == 1
    assert len(replicas_of(found)) == 7
    late = found.outcomes[350:]
    shares = [sum(o.replica == name for o in late) / len(late) for name in replicas_of(found)]
    assert max(shares) < 2 / 7
    assert found.hit_rate() > 0.7


def test_routers_find_depths_of_their_own() -> None:
    requests = workload("documents", 700, 0.4)
    result = simulate(requests, FleetPlan("prefix_aware", depth_auto=True, routers=4))
    assert_whole(result, requests)
    assert len(replicas_of(result)) == 7


def test_adaptive_always_looks_deeper_and_others_do_when_asked() -> None:
    assert FleetPlan("adaptive").looks_deeper
    assert FleetPlan("prefix_aware", depth_auto=True).looks_deeper
    assert not FleetPlan("prefix_aware").looks_deeper
