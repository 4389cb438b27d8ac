"""Replicas that join, leave and restart in the middle of a simulation."""

from __future__ import annotations

import pytest

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES, attention_pairs
from prefix_router.fleetsim.plan import FleetChange, FleetEvent, FleetPlan
from prefix_router.fleetsim.simulation import simulate
from prefix_router.routing.decision import Reason
from tests.support.simulated import assert_whole, replicas_of, simulated, traffic

JOIN, LEAVE, RESTART = FleetChange.JOIN, FleetChange.LEAVE, FleetChange.RESTART
PROFILE = PROFILES[DEFAULT_PROFILE]


def test_a_replica_that_joins_takes_its_share_and_one_that_left_takes_none() -> None:
    requests = traffic(600, prefixes=100)
    middle = requests[300].arrival_seconds
    events = (FleetEvent(middle, JOIN, 3), FleetEvent(middle, LEAVE, 0))
    result = simulate(requests, FleetPlan("plain_ring", replicas=3, events=events))
    assert_whole(result, requests)
    assert not any(outcome.failed for outcome in result.outcomes)
    assert replicas_of(result, end=middle) == {"replica-0", "replica-1", "replica-2"}
    assert replicas_of(result, start=middle + 1e-9) == {"replica-1", "replica-2", "replica-3"}


def test_a_replica_that_leaves_finishes_what_it_has() -> None:
    plan = FleetPlan("random", replicas=1, events=(FleetEvent(0.1, LEAVE, 0),))
    (outcome,) = simulate([simulated(range(10), output=100)], plan).outcomes
    assert not outcome.failed
    assert outcome.end_seconds > 0.1


def test_without_replicas_a_request_fails() -> None:
    plan = FleetPlan("random", replicas=1, events=(FleetEvent(1.0, LEAVE, 0),))
    requests = [simulated([1], 2.0)]
    result = simulate(requests, plan)
    assert_whole(result, requests)
    assert (result.outcomes[0].failed, result.outcomes[0].replica) == (True, None)


def test_a_replica_that_comes_back_is_cold() -> None:
    events = (FleetEvent(5.0, LEAVE, 0), FleetEvent(6.0, JOIN, 0))
    requests = [simulated([1, 2, 3], seconds) for seconds in (0.0, 4.0, 10.0, 14.0)]
    outcomes = simulate(requests, FleetPlan("random", replicas=1, events=events)).outcomes
    assert [outcome.cached_tokens for outcome in outcomes] == [0, 32, 0, 32]


def test_a_restart_makes_a_replica_cold() -> None:
    requests = [simulated([1, 2, 3], seconds) for seconds in (0.0, 4.0, 10.0)]
    plan = FleetPlan("random", replicas=1, events=(FleetEvent(5.0, RESTART, 0),))
    assert [outcome.cached_tokens for outcome in simulate(requests, plan).outcomes] == [0, 32, 0]


@pytest.mark.parametrize("restarted_at", [0.005, 0.1], ids=["on its way", "being computed"])
def test_a_restart_sends_what_had_no_token_yet_elsewhere(restarted_at: float) -> None:
    request = simulated(range(500), output=3)
    home = simulate([request], FleetPlan("plain_ring", replicas=3)).outcomes[0].replica
    assert home is not None
    prefill_seconds = PROFILE.prefill_ms(8000, attention_pairs(8000, 0)) / 1e3
    restart = FleetEvent(restarted_at, RESTART, int(home.removeprefix("replica-")))
    result = simulate([request], FleetPlan("plain_ring", replicas=3, events=(restart,)))
    assert_whole(result, [request])
    (outcome,) = result.outcomes
    assert not outcome.failed
    assert outcome.replica != home
    assert outcome.reason is Reason.FAILOVER
    assert outcome.first_token_seconds == pytest.approx(restarted_at + 0.015 + prefill_seconds)


def test_a_restart_ends_an_answer_that_has_begun() -> None:
    plan = FleetPlan("random", replicas=1, events=(FleetEvent(0.5, RESTART, 0),))
    requests = [simulated([1], output=1000)]
    result = simulate(requests, plan)
    assert_whole(result, requests)
    (outcome,) = result.outcomes
    assert (outcome.failed, outcome.end_seconds) == (True, 0.5)
    assert outcome.first_token_seconds is not None


def test_a_restart_ends_the_way_of_what_can_never_fit() -> None:
    plan = FleetPlan("random", replicas=2, kv_tokens=320, events=(FleetEvent(0.001, RESTART, 0),))
    requests = [simulated(range(30), output=1) for _ in range(8)]
    result = simulate(requests, plan)
    assert_whole(result, requests)
    assert {outcome.end_seconds for outcome in result.outcomes} == {0.015, 0.016}


@pytest.mark.parametrize(("change", "replica"), [(JOIN, 1), (LEAVE, 2), (RESTART, 2)])
def test_a_change_of_a_replica_that_is_not_there_is_refused(change: FleetChange, replica: int) -> None:
    plan = FleetPlan("random", replicas=2, events=(FleetEvent(1.5, change, replica),))
    with pytest.raises(ValueError, match=f"replica-{replica} cannot {change.value} at 1.5 s"):
        simulate([], plan)
