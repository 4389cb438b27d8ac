"""Baseline `bounded_ring`: consistent hashing with bounded loads.

The rule, as published by Mirrokni, Thorup and Zadimoghaddam, with the factor that KubeAI and HAProxy's users
commonly set: no replica may have more than 125% of the mean load, the new request counted in and the bound
rounded up. A request goes to the first replica on the ring, from its key on, that stays within the bound.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from prefix_router.fleetsim.policy import Policy
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.strategies.least_outstanding_requests import by_load

if TYPE_CHECKING:
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.fleet import Fleet

LOAD_FACTOR = 1.25
"""How many times the mean load a replica may have."""


class BoundedRing(Policy):
    """The first replica on the ring that is not above the bound."""

    name = "bounded_ring"

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """The first member on the ring within the bound; there always is one when somebody is routable."""
        query = routed.query
        if query.key is None:
            return by_load(query, fleet, Reason.KEYLESS)
        routable = fleet.routable(query.model, query.failed)
        if not routable:
            return None
        total = sum(member.in_flight.count for member in routable) + 1
        bound = ceil(LOAD_FACTOR * total / len(routable))
        home = None
        for member in fleet.successors(query.key, query.model):
            home = home or member
            if member in routable and member.in_flight.count < bound:
                return Decision(member, Reason.AFFINITY if member is home else Reason.OVERFLOW, home.name)
        return None
