"""Strategy `random`: any routable backend, with a probability proportional to its weight.

The baseline that prefix-aware routing is measured against. The randomness comes in as the query's draw, so
a test states it. O(backends) for each decision.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from prefix_router.routing.decision import Decision, Reason

if TYPE_CHECKING:
    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import Fleet


class Random:
    """A weighted draw among the routable backends."""

    name = "random"

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The backend on which the query's draw falls; None when nobody is routable."""
        members = fleet.routable(query.model, query.failed | query.refused)
        ends = list(accumulate(member.backend.weight for member in members))
        if not ends:
            return None
        # The draw as a fraction of 2⁶⁴, scaled to the weights: the bias is below one part in 10¹⁵.
        ticket = query.draw * ends[-1] >> 64
        return Decision(members[bisect_right(ends, ticket)], Reason.RANDOM)
