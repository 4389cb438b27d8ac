"""Baseline `plain_ring`: consistent hashing and nothing else.

The rule: the owner of the key on the ring gets the request, however busy it is; when it cannot take it,
the next on the ring. It has the best hit rate a static assignment can have and no defence against a hot key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.policy import Policy
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.strategies.least_outstanding_requests import by_load

if TYPE_CHECKING:
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.fleet import Fleet


class PlainRing(Policy):
    """The ring owner of the key."""

    name = "plain_ring"

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """The first member on the ring that admits and has not failed."""
        query = routed.query
        if query.key is None:
            return by_load(query, fleet, Reason.KEYLESS)
        home = None
        for member in fleet.successors(query.key, query.model):
            home = home or member
            if member.admits() and member.name not in query.failed:
                return Decision(member, Reason.AFFINITY if member is home else Reason.FAILOVER, home.name)
        return None
