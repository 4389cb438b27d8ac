from __future__ import annotations

from prefix_router.fleetsim.baselines.plain_ring import PlainRing
from prefix_router.routing.decision import Reason
from tests.support.fleets import backend_names, busy
from tests.support.simulated import routed, simulated

A, B, C = backend_names("a", "b", "c")


def test_the_owner_gets_the_request_however_busy_it_is() -> None:
    request = routed(simulated([1]))
    assert request.query.key is not None
    fleet = busy({A: 0, B: 0, C: 0})
    owner = fleet.ring.owner(request.query.key)
    assert owner is not None
    fleet.by_name[owner].in_flight.count = 1000
    decision = PlainRing().choose(request, fleet, 0.0)
    assert decision is not None
    assert (decision.member.name, decision.reason) == (owner, Reason.AFFINITY)


def test_after_a_failure_the_next_on_the_ring_does() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    request = routed(simulated([1]))
    assert request.query.key is not None
    owner, following, _ = fleet.ring.successors(request.query.key)
    request.query = request.query.after_failure(owner)
    decision = PlainRing().choose(request, fleet, 0.0)
    assert decision is not None
    assert (decision.member.name, decision.reason, decision.home) == (following, Reason.FAILOVER, owner)
