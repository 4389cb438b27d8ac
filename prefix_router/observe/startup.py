"""How long each backend that joined a running fleet took to become useful, phase by phase.

One record for each backend that joined after the router's start; the record goes with its backend. Phases are
noted once, in seconds since the backend was discovered: by whoever asks it (reachable, healthy, warmed), and
by the first request that it answered well. A request costs one look at a set that is nearly always empty.

Used from the event loop's thread; `seconds` may be read from another one. It must never raise into a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
    from prefix_router.routing.fleet import BackendName

logger = logging.getLogger(__name__)


class StartupPhase(Enum):
    """What a backend that joins reaches one after the other. The values are metric labels."""

    DISCOVERED = "discovered"
    REACHABLE = "reachable"
    """It gave an answer, whatever that said."""
    HEALTHY = "healthy"
    """Its health path answered 2xx."""
    WARMED = "warmed"
    """It showed what `joining.warm_up` asks for; left out when that is off, or was not shown in time."""
    FIRST_REQUEST = "first_request"
    """The first request that it answered 2xx came in."""
    FIRST_TOKEN = "first_token"
    """The first content of that answer; its first byte where it was no stream."""


class Startups:
    """An Observer that keeps the records. clock: gives seconds (monotonic)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._discovered_at: dict[BackendName, float] = {}
        self._seconds: dict[BackendName, dict[StartupPhase, float]] = {}
        self._open: set[BackendName] = set()

    def discovered(self, names: Iterable[BackendName]) -> None:
        """Begin the records of backends that have just joined, anew for one that was here before."""
        now = self._clock()
        for name in names:
            self._discovered_at[name] = now
            self._seconds[name] = {StartupPhase.DISCOVERED: 0.0}
            self._open.add(name)

    def set_backends(self, names: Collection[BackendName]) -> None:
        """Keep the records of these backends only."""
        for name in self._seconds.keys() - set(names):
            del self._seconds[name], self._discovered_at[name]
            self._open.discard(name)

    def reached(self, name: BackendName, phase: StartupPhase) -> None:
        """Note that a backend has reached a phase now; the first time counts.

        Also after its first request: one that still warms up may have answered as the last resort.
        """
        if name in self._seconds:
            self._note(name, phase, self._clock())

    @property
    def open(self) -> bool:
        """Whether some record is not complete."""
        return bool(self._open)

    def seconds(self) -> Mapping[BackendName, Mapping[StartupPhase, float]]:
        """Return the phases reached so far, as a copy: seconds since each backend was discovered."""
        return {name: dict(phases) for name, phases in list(self._seconds.items())}

    def document(self, name: BackendName) -> dict[str, float] | None:
        """Return the record of one backend as plain values, None for one that was here from the start."""
        phases = self._seconds.get(name)
        return None if phases is None else {phase.value: round(value, 3) for phase, value in phases.items()}

    def request_finished(self, event: RequestRecord) -> None:
        """Complete the record of a backend by the first request that it answered well."""
        name = event.backend
        if not self._open or name not in self._open or not 200 <= event.status < 300:
            return
        came_at = self._clock() - event.duration_seconds
        token = event.first_byte_seconds if event.first_token_seconds is None else event.first_token_seconds
        assert name is not None
        self._note(name, StartupPhase.FIRST_REQUEST, came_at)
        self._note(name, StartupPhase.FIRST_TOKEN, came_at + (token or 0.0))
        self._open.discard(name)
        took = ", ".join(f"{phase.value} {value:.3f} s" for phase, value in self._seconds[name].items())
        logger.info("backend %s has started: %s", name, took)

    def backend_changed(self, event: BackendChanged) -> None:
        """Its phases are told by who asks it."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Says nothing of a start."""

    def _note(self, name: BackendName, phase: StartupPhase, at: float) -> None:
        # A request that was under way when its backend joined again under the same name came before it.
        self._seconds[name].setdefault(phase, max(at - self._discovered_at[name], 0.0))
