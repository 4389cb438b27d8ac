from __future__ import annotations

import pytest

from prefix_router.fleetsim.policy import Policy, StrategyPolicy
from prefix_router.routing.decision import Reason
from prefix_router.routing.strategies.prefix_aware import PrefixAware
from tests.support.fleets import backend_names, busy, key_homed_at
from tests.support.simulated import routed, simulated

A, B, C = backend_names("a", "b", "c")


def test_a_strategy_of_the_router_decides_on_the_query_and_the_fleet() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    request = routed(simulated([1]))
    request.query = request.query._replace(key=key_homed_at(fleet, B))
    decision = StrategyPolicy(PrefixAware(10)).choose(request, fleet, 0.0)
    assert decision is not None
    assert (decision.member.name, decision.reason) == (B, Reason.AFFINITY)


def test_a_policy_must_choose_and_need_not_listen() -> None:
    policy = Policy()
    request = routed(simulated([1]))
    policy.dispatched(request, A, 0.0)
    policy.first_token(request, A, 1.0, 0)
    policy.finished(request, A, 2.0)
    policy.emptied(A, 3.0)
    with pytest.raises(NotImplementedError):
        policy.choose(request, busy({A: 0}), 0.0)
