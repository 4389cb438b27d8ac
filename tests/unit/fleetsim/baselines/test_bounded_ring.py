from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.fleetsim.baselines.bounded_ring import LOAD_FACTOR, BoundedRing
from prefix_router.routing.decision import Reason
from tests.support.fleets import backend_names, busy
from tests.support.simulated import routed, simulated

A, B, C, D = backend_names("a", "b", "c", "d")


@pytest.mark.parametrize(("owner_count", "place"), [(12, 0), (13, 0), (15, 1)])
def test_the_owner_is_left_when_it_is_at_125_percent_of_the_mean(owner_count: int, place: int) -> None:
    request = routed(simulated([1]))
    assert request.query.key is not None
    fleet = busy({A: 10, B: 10, C: 10, D: 10})
    order = list(fleet.ring.successors(request.query.key))
    fleet.by_name[order[0]].in_flight.count = owner_count
    decision = BoundedRing().choose(request, fleet, 0.0)
    assert decision is not None
    assert decision.member.name == order[place]
    assert decision.reason is (Reason.OVERFLOW if place else Reason.AFFINITY)


@given(counts=st.lists(st.integers(0, 40), min_size=4, max_size=4), block=st.integers(0, 100))
def test_nobody_is_sent_above_the_bound(counts: list[int], block: int) -> None:
    fleet = busy(dict(zip((A, B, C, D), counts, strict=True)))
    decision = BoundedRing().choose(routed(simulated([block])), fleet, 0.0)
    assert decision is not None
    assert decision.member.in_flight.count + 1 <= ceil(LOAD_FACTOR * (sum(counts) + 1) / 4)
