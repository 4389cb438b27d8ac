from __future__ import annotations

import random
from collections import Counter

from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.strategies.random import Random
from tests.support.fleets import fleet_of, member, query


def test_draws_fall_on_backends_in_proportion_to_weight() -> None:
    fleet = fleet_of([member("a", 5), member("b", weight=3), member("c", weight=6)])
    evenly_spaced = [(2 * index + 1) * 2**64 // 200 for index in range(100)]
    decisions = [Random().choose(query(1, draw=draw), fleet) for draw in evenly_spaced]
    targets = Counter(decision.member.name for decision in decisions if decision)
    assert targets == {"a": 10, "b": 30, "c": 60}


def test_smallest_and_largest_draw_have_a_backend() -> None:
    fleet = fleet_of([member("a"), member("b"), member("c")])
    first, last = (Random().choose(query(draw=draw), fleet) for draw in (0, 2**64 - 1))
    assert first is not None
    assert last is not None
    assert (first.member.name, last.member.name) == ("a", "c")
    assert first.reason is Reason.RANDOM
    assert first.home is None


def test_only_routable_backends_are_drawn() -> None:
    fleet = fleet_of(
        [
            member("a"),
            member("b"),
            member("c", state=BackendState.EJECTED),
            member("d", models=["other"]),
            member("e"),
        ]
    )
    source = random.Random(1)
    for _ in range(50):
        decision = Random().choose(
            query(model="m", draw=source.getrandbits(64), failed="a", refused="b"), fleet
        )
        assert decision is not None
        assert decision.member.name == "e"
    assert Random().choose(query(model="m", failed="ae", refused="b"), fleet) is None
