"""One simulated router: a policy, its own view of the fleet, and its own counts of requests in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefix_router.fleetsim.policy import Policy, RoutedRequest
    from prefix_router.routing.decision import Decision
    from prefix_router.routing.depth import Depth
    from prefix_router.routing.ring import Ring


class Router:
    """Routes by `policy` over the replicas it was last told of. Routers share nothing but the ring."""

    def __init__(
        self, policy: Policy, names: Iterable[BackendName], ring: Ring, depth: Depth | None = None
    ) -> None:
        """depth: where its keys end; None when that is at a fixed length."""
        self.policy = policy
        self.depth = depth
        self._in_flight: dict[BackendName, InFlight] = {}
        self.change_fleet(names, ring)

    @property
    def in_flight(self) -> int:
        """Its requests that have not ended, those on replicas that left the fleet included."""
        return sum(in_flight.count for in_flight in self._in_flight.values())

    def change_fleet(self, names: Iterable[BackendName], ring: Ring) -> None:
        """Route over these replicas from now on; counts go on under the same names."""
        self.fleet = Fleet(tuple(self._member(name) for name in names), ring)

    def dispatch(self, routed: RoutedRequest, now: float) -> Decision | None:
        """Decide and count the request as in flight; None, and nothing counted, when nobody can take it."""
        decision = self.policy.choose(routed, self.fleet, now)
        if decision is not None:
            decision.member.in_flight.take()
            self.policy.dispatched(routed, decision.member.name, now)
        return decision

    def finish(self, routed: RoutedRequest, backend: BackendName, now: float, *, whole: bool) -> None:
        """Count the request as no longer in flight on `backend`. whole: whether it has its whole answer."""
        self._in_flight[backend].give()
        self.policy.finished(routed, backend, now, whole=whole)

    def _member(self, name: BackendName) -> Member:
        in_flight = self._in_flight.setdefault(name, InFlight())
        return Member(Backend(name, f"http://{name}"), BackendState.HEALTHY, in_flight)
