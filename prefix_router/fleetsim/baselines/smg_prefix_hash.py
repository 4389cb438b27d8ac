"""Baseline `smg_prefix_hash`: the prefix-hash policy of smg, a router in Rust.

The rule: the first 256 tokens are hashed onto a ring with 150 virtual nodes for each replica. The owner gets
the request while its load is at most max(1.25 × mean, mean + 10); above that the least loaded replica does.
The prefix is always 256 tokens, whatever the plan says, and never ends at a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.keys import prefix_key
from prefix_router.fleetsim.policy import Policy
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.ring import Ring
from prefix_router.routing.strategies.least_outstanding_requests import by_load

if TYPE_CHECKING:
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.fleet import Fleet

PREFIX_TOKENS = 256
VIRTUAL_NODES = 150
LOAD_FACTOR = 1.25
LOAD_MARGIN = 10


class SmgPrefixHash(Policy):
    """The ring owner of a short prefix, bounded by the mean load."""

    name = "smg_prefix_hash"

    def __init__(self) -> None:
        self._ring = Ring({}, VIRTUAL_NODES)

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """The owner within its bound, else the least loaded."""
        query = routed.query
        routable = fleet.routable(query.model, query.failed)
        if not routable:
            return None
        if self._ring.weights != fleet.ring.weights:
            self._ring = Ring(fleet.ring.weights, VIRTUAL_NODES)
        owner = self._ring.owner(prefix_key(routed.request, PREFIX_TOKENS, anchored=False))
        assert owner is not None
        mean = sum(member.in_flight.count for member in routable) / len(routable)
        member = fleet.by_name[owner]
        if member in routable and member.in_flight.count <= max(LOAD_FACTOR * mean, mean + LOAD_MARGIN):
            return Decision(member, Reason.AFFINITY, owner)
        elsewhere = by_load(query, fleet, Reason.OVERFLOW if member in routable else Reason.FAILOVER)
        return None if elsewhere is None else elsewhere._replace(home=owner)
