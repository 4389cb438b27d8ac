"""Strategy `least_outstanding_requests`: the backend with the fewest in-flight requests per share of weight.

The baseline that is best without any prefix reuse, and what every other strategy falls back on for
a request with nothing to hash. Equally loaded backends are told apart by the query's random draw: taking
the first of them would send the start of each burst, and each router of several, to the same backend.
O(backends) for each decision. It must never wait for, or count, anything but the leases in the snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.capacity import least_loaded
from prefix_router.routing.decision import Decision, Reason

if TYPE_CHECKING:
    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import Fleet


class LeastOutstandingRequests:
    """The least-loaded backend, whatever the request's prefix."""

    name = "least_outstanding_requests"

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The least-loaded routable backend; None when there is none."""
        return by_load(query, fleet, Reason.LEAST_OUTSTANDING_REQUESTS)


def by_load(query: Query, fleet: Fleet, reason: Reason) -> Decision | None:
    """The least-loaded routable backend, ties spread by `query.draw`, decided for `reason`."""
    tied = least_loaded(fleet.routable(query.model, query.failed | query.refused))
    if not tied:
        return None
    return Decision(tied[query.draw % len(tied)], reason)
