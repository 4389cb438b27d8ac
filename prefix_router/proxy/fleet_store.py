"""The one place where the fleet changes.

Holds what is known of each backend and publishes it as an immutable `Fleet`: a new snapshot replaces the
old one whole, so that no decision ever sees half a change and none takes a lock. The ring is rebuilt only
when names or weights change; health moves states, never points on the ring.

A backend is its name and URL. When a reload keeps both, everything known of it stays: its count of
leases, its health, its models. Evidence that arrives for a backend that has meanwhile left is dropped.

Cost: a snapshot is O(backends); evidence that changes nothing is O(1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prefix_router.observe.events import BackendChanged, Observer
from prefix_router.routing.fleet import (
    Backend,
    BackendName,
    BackendState,
    Fleet,
    InFlight,
    Member,
    with_last_resorts,
)
from prefix_router.routing.health import Health, HealthEvent, HealthPolicy, may_eject, step
from prefix_router.routing.ring import Ring

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of a backend's `/v1/models`: its id and the whole JSON object as the backend wrote it."""

    id: str
    json: bytes


@dataclass(slots=True)
class _Record:
    backend: Backend
    health: Health
    in_flight: InFlight = field(default_factory=InFlight)
    models: tuple[ServedModel, ...] | None = None
    draining: bool = False
    last_suspect: int | None = None

    def member(self) -> Member:
        models = self.backend.models
        if models is None and self.models is not None:
            models = frozenset(model.id for model in self.models)
        return Member(self.backend, self.health.state, self.in_flight, models, self.draining)


class FleetStore:
    """Current fleet, and the ways to change it. Used from the event loop's thread only."""

    def __init__(
        self,
        backends: Iterable[Backend],
        *,
        virtual_nodes: int,
        policy: HealthPolicy,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        """Start with `backends`; `clock` gives seconds (monotonic)."""
        self._policy = policy
        self._observer = observer
        self._clock = clock
        self._records: dict[BackendName, _Record] = {}
        self._ring = Ring({}, virtual_nodes)
        self.fleet = Fleet((), self._ring)
        self.replace_backends(backends)

    def replace_backends(self, backends: Iterable[Backend]) -> None:
        """Make the fleet consist of `backends`, keeping what is known of those that stay."""
        now = self._clock()
        records: dict[BackendName, _Record] = {}
        for backend in backends:
            known = self._records.get(backend.name)
            if known is not None and known.backend.url == backend.url:
                known.backend = backend
                records[backend.name] = known
            else:
                records[backend.name] = _Record(backend, Health(since=now))
        weights = {name: record.backend.weight for name, record in records.items()}
        if weights != self._ring.weights:
            self._ring = self._ring.with_weights(weights)
        self._records = records
        self._publish()

    def report(
        self, backend: Backend, event: HealthEvent, cause: str = "", suspect: int | None = None
    ) -> None:
        """Apply one piece of evidence about `backend`.

        cause: for the log line of a change. suspect: key of the request that went wrong; one prompt that
        goes wrong again and again is the prompt's fault and counts once.
        """
        record = self._records.get(backend.name)
        if record is None or record.backend.url != backend.url:
            return
        if event is HealthEvent.REQUEST_BAD:
            if suspect is not None and suspect == record.last_suspect:
                return
            record.last_suspect = suspect
        before = record.health
        after = step(before, event, self._clock(), self._policy)
        if after is before:
            return
        leaves_service = after.state is BackendState.EJECTED and before.state in (
            BackendState.STARTING,
            BackendState.HEALTHY,
        )
        states = [other.health.state for other in self._records.values()]
        if leaves_service and not may_eject(states, self._policy):
            # It stays in service with its failures on record: too much of the fleet is out already.
            return
        record.health = after
        if after.state is not before.state:
            self._publish()
            self._observer.backend_changed(
                BackendChanged(backend.name, before.state, after.state, cause or event.value)
            )

    def set_models(self, backend: Backend, models: tuple[ServedModel, ...] | None) -> None:
        """Keep what the backend's `/v1/models` said; None for "cannot be asked"."""
        record = self._records.get(backend.name)
        if record is None or record.backend.url != backend.url or record.models == models:
            return
        record.models = models
        self._publish()

    def set_draining(self, name: BackendName, draining: bool) -> bool:
        """Stop (or resume) sending new work to a backend. Returns False when there is no such backend."""
        record = self._records.get(name)
        if record is None:
            return False
        if record.draining != draining:
            record.draining = draining
            self._publish()
        return True

    def served_models(self) -> Mapping[BackendName, tuple[ServedModel, ...] | None]:
        """Models as listed by each backend that takes traffic, in configuration order."""
        served: dict[BackendName, tuple[ServedModel, ...] | None] = {}
        for member in self.fleet.members:
            out = member.state is BackendState.EJECTED and not member.last_resort
            if member.state is not BackendState.DOWN and not out:
                served[member.name] = self._records[member.name].models
        return served

    def health(self, name: BackendName) -> Health:
        """Return the health of a backend of the current fleet."""
        return self._records[name].health

    def _publish(self) -> None:
        members = [record.member() for record in self._records.values()]
        self.fleet = Fleet(tuple(with_last_resorts(members)), self._ring)
