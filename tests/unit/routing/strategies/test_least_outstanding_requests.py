from __future__ import annotations

import random
from collections import Counter

from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.strategies.least_outstanding_requests import LeastOutstandingRequests
from tests.support.fleets import backend_names, busy, fleet_of, member, numbered, query, take

A, B, C = backend_names("a", "b", "c")


def test_backend_with_the_fewest_requests_is_chosen_whatever_the_key() -> None:
    fleet = busy({A: 2, B: 1, C: 3})
    for key in (None, 1, 2**63):
        decision = LeastOutstandingRequests().choose(query(key), fleet)
        assert decision == Decision(fleet.by_name[B], Reason.LEAST_OUTSTANDING_REQUESTS)


def test_requests_count_per_share_of_weight() -> None:
    fleet = fleet_of([member("a", 2), member("b", 5, weight=4)])
    decision = LeastOutstandingRequests().choose(query(), fleet)
    assert decision is not None
    assert decision.member.name == "b"


def test_ties_are_told_apart_by_the_draw_and_not_by_the_order() -> None:
    fleet = busy({A: 1, B: 1, C: 1})
    strategy = LeastOutstandingRequests()
    decisions = [strategy.choose(query(draw=draw), fleet) for draw in range(300)]
    assert Counter(decision.member.name for decision in decisions if decision) == {
        "a": 100,
        "b": 100,
        "c": 100,
    }


def test_burst_spreads_evenly_by_weight() -> None:
    fleet = fleet_of([member("a"), member("b", weight=2), member("c", weight=4)])
    strategy, source = LeastOutstandingRequests(), random.Random(3)
    for _ in range(70):
        assert take(strategy, query(draw=source.getrandbits(64)), fleet)
    assert [found.in_flight.count for found in fleet.members] == [10, 20, 40]


def test_several_routers_do_not_herd_on_one_idle_backend() -> None:
    targets: Counter[str] = Counter()
    for router in range(7):
        fleet, source = busy(dict.fromkeys(numbered(7), 0)), random.Random(router)
        for _ in range(4):
            decision = take(LeastOutstandingRequests(), query(draw=source.getrandbits(64)), fleet)
            assert decision is not None
            targets[decision.member.name] += 1
    assert max(targets.values()) <= 3 * 4


def test_backends_that_failed_or_refused_or_cannot_take_it_are_left_out() -> None:
    fleet = fleet_of(
        [
            member("a", state=BackendState.DOWN),
            member("b"),
            member("c", 1),
            member("d", 8),
            member("e", 9),
            member("f", models=["other"]),
        ]
    )
    strategy = LeastOutstandingRequests()
    decision = strategy.choose(query(model="m", failed="b", refused="c"), fleet)
    assert decision is not None
    assert decision.member.name == "d"
    assert strategy.choose(query(model="m", failed="be", refused="cd"), fleet) is None
