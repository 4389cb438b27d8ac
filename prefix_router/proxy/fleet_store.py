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
from dataclasses import dataclass
from typing import Protocol

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
    in_flight: InFlight
    models: tuple[ServedModel, ...] | None = None
    draining: bool = False
    last_suspect: int | None = None

    def member(self) -> Member:
        models = known_models(self.backend, self.models)
        return Member(self.backend, self.health.state, self.in_flight, models, self.draining)


class FleetSource(Protocol):
    """What the data path needs of whoever knows the fleet: the store itself, or a worker's copy of it."""

    fleet: Fleet

    def report(
        self, backend: Backend, event: HealthEvent, cause: str = "", suspect: int | None = None
    ) -> None:
        """Take one piece of evidence about `backend`."""

    def served_models(self) -> Mapping[BackendName, tuple[ServedModel, ...] | None]:
        """Models as listed by each backend that takes traffic, in configuration order."""


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
        in_flight: Callable[[], InFlight] = InFlight,
    ) -> None:
        """Start with `backends`; `clock` gives seconds (monotonic), `in_flight` a counter for who joins."""
        self._policy = policy
        self._observer = observer
        self._clock = clock
        self._in_flight = in_flight
        self._followers: list[Callable[[], None]] = []
        self._records: dict[BackendName, _Record] = {}
        self._ring = Ring({}, virtual_nodes)
        self.fleet = Fleet((), self._ring)
        self.replace_backends(backends)

    def ring_of(self, backends: Iterable[Backend], virtual_nodes: int | None = None) -> Ring:
        """Return the ring that `backends` would have; changes nothing, so a thread may ask.

        Other `virtual_nodes` than now, or a large fleet made of new names, take some hundred milliseconds.
        """
        weights = {backend.name: backend.weight for backend in backends}
        ring = self._ring
        if virtual_nodes is not None and virtual_nodes != ring.virtual_nodes:
            return Ring(weights, virtual_nodes)
        return ring if weights == ring.weights else ring.with_weights(weights)

    def replace_backends(
        self,
        backends: Iterable[Backend],
        *,
        ring: Ring | None = None,
        policy: HealthPolicy | None = None,
        joining: BackendState = BackendState.STARTING,
    ) -> frozenset[BackendName]:
        """Make the fleet consist of `backends`, keeping what is known of those that stay.

        ring: as made by `ring_of` for the same backends; made here by default. policy: what the health table
        goes by from now on; the one so far by default. joining: the state of those that are new. Returns the
        names of the backends that stay.
        """
        backends = tuple(backends)
        now = self._clock()
        records: dict[BackendName, _Record] = {}
        for backend in backends:
            known = self._records.get(backend.name)
            if known is not None and known.backend.url == backend.url:
                known.backend = backend
                records[backend.name] = known
            else:
                records[backend.name] = _Record(backend, Health(joining, now), self._in_flight())
        stay = frozenset(name for name, record in records.items() if self._records.get(name) is record)
        self._ring = self.ring_of(backends) if ring is None else ring
        self._policy = policy or self._policy
        self._records = records
        self._publish()
        return stay

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
        if event is HealthEvent.REQUEST_OK and record.health.flawless:
            return  # nearly every request: nothing to learn
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
        # Who is draining or warming up carries nothing: it is no loss, and no help.
        states = [
            other.health.state
            for other in self._records.values()
            if not other.draining and other.health.state is not BackendState.WARMING
        ]
        if leaves_service and not record.draining and not may_eject(states, self._policy):
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
        return listed_models(self.fleet, {name: record.models for name, record in self._records.items()})

    def health(self, name: BackendName) -> Health:
        """Return the health of a backend of the current fleet."""
        return self._records[name].health

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each new snapshot from now on."""
        self._followers.append(changed)

    def models(self, name: BackendName) -> tuple[ServedModel, ...] | None:
        """Return what a backend of the current fleet lists as its models, None when that is not known."""
        return self._records[name].models

    def _publish(self) -> None:
        members = [record.member() for record in self._records.values()]
        self.fleet = Fleet(tuple(with_last_resorts(members)), self._ring)
        for changed in self._followers:
            changed()


def known_models(backend: Backend, listed: tuple[ServedModel, ...] | None) -> frozenset[str] | None:
    """The models that a backend serves: as declared, or else as it lists them; None when neither is known."""
    if backend.models is not None or listed is None:
        return backend.models
    return frozenset(model.id for model in listed)


def listed_models(
    fleet: Fleet, listed: Mapping[BackendName, tuple[ServedModel, ...] | None]
) -> dict[BackendName, tuple[ServedModel, ...] | None]:
    """Of `listed`, what the backends that take traffic have, in configuration order."""
    served: dict[BackendName, tuple[ServedModel, ...] | None] = {}
    for member in fleet.members:
        doubtful = member.state in (BackendState.EJECTED, BackendState.WARMING)
        out = doubtful and not member.last_resort
        if member.state is not BackendState.DOWN and not out:
            served[member.name] = listed[member.name]
    return served
