"""Strategy `prefix_aware`: where the prefix is already computed, unless waiting there is clearly worse.

    key? ── no ──────────────────────────────────────────────► least loaded          keyless
     │ yes
    home = first backend on the ring that serves the model
    anchor = home, or the next on the ring that is in service and has not failed on this request
     │
    anchor below its threshold? ── yes ──────────────────────► anchor                affinity | failover
     │ no
    least loaded of the others
      clearly less loaded than the anchor? ── yes ───────────► it                    overflow
     │ no
    stay ────────────────────────────────────────────────────► anchor                saturated | failover

Three rules at the edges. An anchor that answered this very request with back-pressure, or that has as many
requests as it may get at a time, cannot have it: the request goes to the least loaded of the others, even
past the threshold (`overflow`), because the alternative is an error or a wait. A stand-in for an unusable
home is treated like a home in all of this, since its cache fills with the failed backend's prefixes;
`failover` says that the stand-in took the request, however busy it was, and `overflow` that load moved it on.
Overflow never moves a home: the next request of that prefix goes home again.

Ties among least-loaded backends go by ring order for the key: spread over keys, the same in each router.
The common case, a healthy home with room, costs one ring lookup and no walk over the fleet; the others are
O(backends). The strategy has no state, so routers agree without talking, and it must never acquire any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.capacity import below_threshold, clearly_less_loaded, least_loaded
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.strategies.least_outstanding_requests import by_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import Fleet, Member


class PrefixAware:
    """Affinity by prefix key with bounded overflow.

    concurrency_threshold: in-flight requests per share of weight from which a backend counts as full; 1 or
    more, else ValueError.
    """

    name = "prefix_aware"

    def __init__(self, concurrency_threshold: int) -> None:
        if concurrency_threshold < 1:
            raise ValueError(f"concurrency_threshold must be at least 1, not {concurrency_threshold}")
        self._threshold = concurrency_threshold

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The backend for the query's key, by the rules above; None when nobody is routable."""
        key = query.key
        if key is None:
            return by_load(query, fleet, Reason.KEYLESS)
        name = fleet.ring.owner(key)
        if name is None:
            return None
        owner = fleet.by_name[name]
        if (
            below_threshold(owner, self._threshold)
            and owner.admits()
            and owner.serves(query.model)
            and name not in query.failed
            and name not in query.refused
        ):
            return Decision(owner, Reason.AFFINITY, name)
        return self._choose_with_care(key, query, fleet)

    def _choose_with_care(self, key: int, query: Query, fleet: Fleet) -> Decision | None:
        home = anchor = None
        for member in fleet.successors(key, query.model):
            home = home or member
            if member.in_service() and member.name not in query.failed:
                anchor = member
                break
        if home is None or anchor is None:
            return None
        closed = anchor.name in query.refused or anchor.full()
        if not closed and below_threshold(anchor, self._threshold):
            return Decision(anchor, Reason.AFFINITY if anchor is home else Reason.FAILOVER, home.name)
        routable = fleet.routable(query.model, query.failed | query.refused)
        others = [member for member in routable if member is not anchor]
        candidate = _first_on_ring(least_loaded(others), key, fleet)
        if candidate is not None and (closed or clearly_less_loaded(candidate, anchor, others)):
            return Decision(candidate, Reason.OVERFLOW, home.name)
        if closed:
            return None
        return Decision(anchor, Reason.SATURATED if anchor is home else Reason.FAILOVER, home.name)


def _first_on_ring(members: Sequence[Member], key: int, fleet: Fleet) -> Member | None:
    """The member that a walk from `key` meets first; None of none."""
    if len(members) < 2:
        return members[0] if members else None
    names = {member.name for member in members}
    return next((fleet.by_name[name] for name in fleet.ring.successors(key) if name in names), members[0])
