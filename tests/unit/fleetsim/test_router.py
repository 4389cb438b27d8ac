from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.policy import Policy
from prefix_router.fleetsim.router import Router
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.ring import Ring
from tests.support.fleets import backend_names
from tests.support.simulated import routed, simulated

if TYPE_CHECKING:
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.fleet import BackendName, Fleet

A, B = backend_names("a", "b")


class FirstOfAll(Policy):
    """Takes the first member and remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, BackendName, float]] = []

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        return Decision(fleet.members[0], Reason.RANDOM) if fleet.members else None

    def dispatched(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        self.told.append(("dispatched", backend, now))

    def finished(self, routed: RoutedRequest, backend: BackendName, now: float, *, whole: bool) -> None:
        self.told.append(("finished", backend, now))


def router_over(*names: BackendName) -> Router:
    return Router(FirstOfAll(), names, Ring(dict.fromkeys(names, 1), 8))


def counts(router: Router) -> dict[str, int]:
    return {member.name: member.in_flight.count for member in router.fleet.members}


def test_a_request_is_in_flight_from_its_dispatch_to_its_end() -> None:
    router = router_over(A, B)
    request = routed(simulated([1]))
    router.dispatch(request, 1.0)
    assert counts(router) == {A: 1, B: 0}
    router.finish(request, A, 2.0, whole=True)
    assert counts(router) == {A: 0, B: 0}
    assert router.in_flight == 0


def test_the_policy_is_told() -> None:
    router = router_over(A, B)
    request = routed(simulated([1]))
    router.dispatch(request, 1.0)
    router.finish(request, A, 2.0, whole=True)
    assert isinstance(router.policy, FirstOfAll)
    assert router.policy.told == [("dispatched", A, 1.0), ("finished", A, 2.0)]


def test_nothing_is_counted_when_nobody_can_take_a_request() -> None:
    router = router_over()
    assert router.dispatch(routed(simulated([1])), 1.0) is None
    assert router.in_flight == 0


def test_counts_survive_a_change_of_the_fleet() -> None:
    router = router_over(A, B)
    request = routed(simulated([1]))
    router.dispatch(request, 1.0)
    router.change_fleet([B], Ring({B: 1}, 8))
    assert counts(router) == {B: 0}
    assert router.in_flight == 1
    router.change_fleet([A, B], Ring({A: 1, B: 1}, 8))
    assert counts(router) == {A: 1, B: 0}
    router.finish(request, A, 2.0, whole=True)
    assert counts(router) == {A: 0, B: 0}
