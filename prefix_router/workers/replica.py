"""A worker's copy of the fleet. The pool's fleet store is the original; nothing here changes a state.

One original, because two would disagree: a worker that had seen four failures of a backend and one that had
seen five would send the same key to different homes. So a worker reports what its requests showed, and takes
over whole fleets as they are published, a millisecond or so later. Counts are not part of that: they are
shared memory, and true at once.

Has the part of `FleetStore`'s interface that the data path uses (`FleetSource`). Putting a fleet in place
costs O(backends); making a ring for other names or weights takes longer, and may be done in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prefix_router.proxy.fleet_store import ServedModel, known_models, listed_models
from prefix_router.routing.fleet import (
    Backend,
    BackendName,
    BackendState,
    Fleet,
    InFlight,
    Member,
    with_last_resorts,
)
from prefix_router.routing.health import HealthEvent
from prefix_router.routing.ring import Ring
from prefix_router.workers.messages import Evidence, FleetView, MemberView
from prefix_router.workers.shared_counts import SharedCounts, SharedInFlight


class FleetReplica:
    """The fleet as the pool last published it.

    report: takes evidence, and whether it may change a backend's state.
    """

    def __init__(
        self, view: FleetView, counts: SharedCounts, process: int, report: Callable[[Evidence, bool], None]
    ) -> None:
        """Start with `view`; leases are counted for `process`."""
        self._counts = counts
        self._process = process
        self._report = report
        self._served: dict[BackendName, tuple[ServedModel, ...] | None] = {}
        self.fleet = Fleet((), Ring(_weights(view), view.virtual_nodes))
        self.put_in_place(view, self.fleet.ring)

    def needs_ring(self, view: FleetView) -> bool:
        """Whether `view` has another ring than the fleet in place."""
        ring = self.fleet.ring
        return view.virtual_nodes != ring.virtual_nodes or _weights(view) != ring.weights

    def ring_of(self, view: FleetView) -> Ring:
        """Return the ring of `view`; changes nothing, so a thread may ask."""
        ring = self.fleet.ring
        if view.virtual_nodes != ring.virtual_nodes:
            return Ring(_weights(view), view.virtual_nodes)
        return ring.with_weights(_weights(view))

    def put_in_place(self, view: FleetView, ring: Ring) -> None:
        """Decide on `view` from now on."""
        self._served = {member.backend.name: member.served for member in view.members}
        members = [self._member(member) for member in view.members]
        self.fleet = Fleet(tuple(with_last_resorts(members)), ring)

    def report(
        self, backend: Backend, event: HealthEvent, cause: str = "", suspect: int | None = None
    ) -> None:
        """Hand on one piece of evidence; arguments as for `FleetStore.report`."""
        member = self.fleet.by_name.get(backend.name)
        if member is None or member.backend.url != backend.url:
            return
        urgent = event is not HealthEvent.REQUEST_OK or member.state is not BackendState.HEALTHY
        self._report(Evidence(backend.name, backend.url, event, cause, suspect), urgent)

    def served_models(self) -> Mapping[BackendName, tuple[ServedModel, ...] | None]:
        """Models as listed by each backend that takes traffic, in configuration order."""
        return listed_models(self.fleet, self._served)

    def _member(self, view: MemberView) -> Member:
        in_flight = self._counter(view)
        models = known_models(view.backend, view.served)
        return Member(view.backend, view.state, in_flight, models, view.draining)

    def _counter(self, view: MemberView) -> InFlight:
        """The counter of a backend: the same object for as long as it is the same backend."""
        before = self.fleet.by_name.get(view.backend.name)
        if before is not None and before.backend.url == view.backend.url:
            counter = before.in_flight
            if isinstance(counter, SharedInFlight) and counter.slot == view.slot:
                return counter
        return self._counts.in_flight(view.slot, self._process)


def _weights(view: FleetView) -> dict[BackendName, int]:
    return {member.backend.name: member.backend.weight for member in view.members}
