"""Strategy `round_robin`: turns in proportion to weight, among whoever can take the request.

Plain "next index" is unfair as soon as the candidates differ from one request to the next (models, ejected
backends, retries): whoever follows the one left out gets its turns too. So this is stride scheduling: each
turn moves a backend forward by `_LAP / weight`, and the one that is furthest behind is next. A backend that
could not be chosen for a while, or is new, may be at most one lap behind the leader among the candidates:
it does not catch up on what it missed, which would be a burst.

O(backends) for each decision. The state is one number for each backend of the fleet, and never more: those
that left are forgotten. Unlike the others this strategy depends on its own past, so two routers differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.decision import Decision, Reason

if TYPE_CHECKING:
    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import BackendName, Fleet

_LAP = 720_720
"""One turn of a backend of weight 1; divisible by each weight up to 16, for which turns are exact."""


class RoundRobin:
    """Weighted turns."""

    name = "round_robin"

    def __init__(self) -> None:
        self._travelled: dict[BackendName, int] = {}

    @property
    def remembered_count(self) -> int:
        """For how many backends there is state."""
        return len(self._travelled)

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The routable backend that is furthest behind its turns; None when nobody is routable."""
        members = fleet.routable(query.model, query.failed | query.refused)
        if not members:
            return None
        travelled = self._travelled
        rear = max(travelled.get(member.name, 0) for member in members) - _LAP
        places = [max(rear, travelled.get(member.name, rear)) for member in members]
        place = min(places)
        chosen = members[places.index(place)]
        travelled[chosen.name] = place + _LAP // chosen.backend.weight
        if len(travelled) > len(fleet.members):
            self._travelled = {name: far for name, far in travelled.items() if name in fleet.by_name}
        return Decision(chosen, Reason.ROUND_ROBIN)
