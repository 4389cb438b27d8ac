from __future__ import annotations

import pytest

from prefix_router.fleetsim.baselines.smg_prefix_hash import SmgPrefixHash
from prefix_router.fleetsim.policy import RoutedRequest
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import Fleet
from tests.support.fleets import backend_names, busy
from tests.support.simulated import routed, simulated

A, B, C, D = backend_names("a", "b", "c", "d")


def choose(request: RoutedRequest, fleet: Fleet) -> Decision:
    decision = SmgPrefixHash().choose(request, fleet, 0.0)
    assert decision is not None
    return decision


def test_only_the_first_256_tokens_matter() -> None:
    fleet = busy({A: 0, B: 0, C: 0, D: 0})
    homes = {choose(routed(simulated([*range(16), tail])), fleet).home for tail in range(100, 150)}
    assert len(homes) == 1
    homes = {choose(routed(simulated([*range(15), last])), fleet).home for last in range(100, 150)}
    assert len(homes) == 4


def test_the_prefix_does_not_end_with_a_turn() -> None:
    fleet = busy({A: 0, B: 0, C: 0, D: 0})
    requests = [simulated([1, 2, tail], session="s", user_turn=32) for tail in range(100, 150)]
    assert len({choose(routed(request), fleet).home for request in requests}) == 4


@pytest.mark.parametrize(
    ("others", "owner_count", "stays"),
    # mean + 10 rules a quiet fleet, 1.25 × mean a busy one.
    [(0, 13, True), (0, 14, False), (100, 133, True), (100, 138, False)],
)
def test_the_owner_is_left_above_its_bound(others: int, owner_count: int, stays: bool) -> None:
    request = routed(simulated([1]))
    fleet = busy({A: others, B: others, C: others, D: others})
    owner = choose(request, fleet).home
    assert owner is not None
    fleet.by_name[owner].in_flight.count = owner_count
    decision = choose(request, fleet)
    assert decision.home == owner
    assert (decision.member.name == owner) is stays
    assert decision.reason is (Reason.AFFINITY if stays else Reason.OVERFLOW)


def test_a_request_that_leaves_goes_to_the_least_loaded() -> None:
    request = routed(simulated([1]))
    fleet = busy({A: 9, B: 9, C: 9, D: 9})
    owner = choose(request, fleet).home
    assert owner is not None
    fleet.by_name[owner].in_flight.count = 80
    idle = next(member for member in fleet.members if member.name != owner)
    idle.in_flight.count = 1
    assert choose(request, fleet).member is idle


def test_the_ring_follows_the_fleet() -> None:
    policy = SmgPrefixHash()
    request = routed(simulated([1]))
    before = policy.choose(request, busy({A: 0, B: 0, C: 0, D: 0}), 0.0)
    assert before is not None
    left = {name: 0 for name in (A, B, C, D) if name != before.home}
    after = policy.choose(request, busy(left), 0.0)
    assert after is not None
    assert after.home in left


def test_after_a_failure_the_least_loaded_does() -> None:
    request = routed(simulated([1]))
    fleet = busy({A: 0, B: 0, C: 0, D: 0})
    owner = choose(request, fleet).home
    assert owner is not None
    request.query = request.query.after_failure(owner)
    decision = choose(request, fleet)
    assert decision.member.name != owner
    assert decision.reason is Reason.FAILOVER
