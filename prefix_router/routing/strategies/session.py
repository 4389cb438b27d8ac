"""Strategy `session`: all requests of one session go to one backend.

The ring owner of the session id's hash; when that cannot take the request, the next on the ring, so that
a failed backend's sessions spread over all others and come back when it does. A session moves when its
backend leaves; nothing is remembered, so there is no table to grow or to share between routers. The
in-flight count plays no part, unless a backend has a limit of its own and is at it: this is the classic
sticky session, kept for comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.ring import point_of
from prefix_router.routing.strategies.least_outstanding_requests import by_load

if TYPE_CHECKING:
    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import Fleet


class Session:
    """Affinity by session id; requests without one go to the least-loaded backend."""

    name = "session"

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The session's backend, or the next on the ring that admits and has not turned this request down."""
        if query.session is None:
            return by_load(query, fleet, Reason.KEYLESS)
        home = None
        reason = Reason.SESSION
        for member in fleet.successors(point_of(query.session), query.model):
            home = home or member
            usable = member.in_service() and member.name not in query.failed
            if member.name in query.refused or (usable and member.full()):
                # Back-pressure of the backend that should have it: sent away for load, not for failure.
                reason = Reason.OVERFLOW
            elif usable:
                return Decision(member, reason, home.name)
            elif reason is Reason.SESSION:
                reason = Reason.FAILOVER
        return None
