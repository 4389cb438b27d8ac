"""The last hour, for people who look: what `/history` says and the admin page draws.

An `Observer`: it hears of requests when they have ended, never of chunks. The fleet is kept in slots of
`FLEET_SLOT_SECONDS`, each backend in slots of `BACKEND_SLOT_SECONDS`, for sixty minutes. Prometheus keeps
more and for longer; this needs nothing but the router.

Bounded: a slot is at most some 600 bytes, most of it its sketch, so a backend is at most 72 kB and the fleet
300 kB: 100 backends that are all busy for an hour take 7.4 MB. A backend's series go with the backend. Only
the event loop writes. `document` may run in a thread: a slot may then be seen with a request half counted.
Never keeps anything of a request but counts; the most frequent keys are a part of their own (`hot_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from prefix_router.observe.events import Outcome
from prefix_router.observe.series import OUTCOMES, REASONS, Series
from prefix_router.observe.sketch import bucket_of

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
    from prefix_router.routing.fleet import BackendName, BackendState

FLEET_SLOT_SECONDS: Final = 10.0
BACKEND_SLOT_SECONDS: Final = 30.0
HOUR_SECONDS: Final = 3600.0
RECENT_SECONDS: Final = 300.0
"""What "now" means for a quantile: fewer requests say little about a P99."""

SERVER_ERROR = 500
TOO_MANY = 429

_REASON_AT = {reason: at for at, reason in enumerate(REASONS)}
_OUTCOME_AT = {outcome: at for at, outcome in enumerate(OUTCOMES)}
_FAILED = frozenset((Outcome.UPSTREAM_FAILED, Outcome.UPSTREAM_TRUNCATED))


@dataclass(frozen=True, slots=True)
class StateChange:
    """The last change of a backend's health state. at: seconds, monotonic."""

    state: BackendState
    cause: str
    at: float


class History:
    """Keeps the last hour of a router. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.epoch = uuid4().hex
        """Slots of one process can be put together, those of two cannot."""
        self._clock = clock
        self._fleet = Series(FLEET_SLOT_SECONDS, int(HOUR_SECONDS / FLEET_SLOT_SECONDS), kinds=True)
        self._backends: dict[BackendName, Series] = {}
        self._changes: dict[BackendName, StateChange] = {}

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Keep exactly these backends from now on; those that stay keep their hour."""
        self._backends = {name: self._backends.get(name) or _backend_series() for name in names}
        kept = self._backends.keys()
        self._changes = {name: change for name, change in self._changes.items() if name in kept}

    def request_finished(self, event: RequestRecord) -> None:
        """Count one finished request."""
        now = self._clock()
        failed = event.status >= SERVER_ERROR or event.status == TOO_MANY or event.outcome in _FAILED
        first_token = event.first_token_seconds
        bucket = None if first_token is None else bucket_of(first_token)
        slot = self._fleet.at(now)
        if slot.outcomes is not None and slot.reasons is not None:
            slot.outcomes[_OUTCOME_AT[event.outcome]] += 1
            if event.reason is not None:
                slot.reasons[_REASON_AT[event.reason]] += 1
        series = None if event.backend is None else self._backends.get(event.backend)
        for each in (slot,) if series is None else (slot, series.at(now)):
            each.requests += 1
            each.errors += failed
            if event.prompt_tokens is not None and event.cached_tokens is not None:
                each.prompt += event.prompt_tokens
                each.cached += event.cached_tokens
            if bucket is not None:
                each.add_first_token(bucket)

    def backend_changed(self, event: BackendChanged) -> None:
        """Keep since when, and why, a backend is in its state."""
        if event.backend in self._backends:
            self._changes[event.backend] = StateChange(event.after, event.cause, self._clock())

    def engine_sampled(self, event: EngineSample) -> None:
        """Nothing is kept of it."""

    def document(self, since: float = 0.0, epoch: str | None = None) -> dict[str, Any]:
        """Return the `/history` document: everything, or what is newer for a reader who has the rest.

        since: `next` of an earlier document; it counts only with the `epoch` of that document. A slot that
        was not over then comes again. O(backends × slots asked for).
        """
        now = self._clock()
        since = since if epoch == self.epoch else 0.0
        backends = self._backends
        return {
            "epoch": self.epoch,
            "now": round(now, 3),
            "next": round(now - now % BACKEND_SLOT_SECONDS, 3),
            "recent_seconds": RECENT_SECONDS,
            "fleet": self._part(self._fleet, now, since),
            "backends": {
                name: self._part(series, now, since) | self._change(name, now)
                for name, series in backends.items()
            },
        }

    def _part(self, series: Series, now: float, since: float) -> dict[str, Any]:
        return {
            **series.columns(now, series.number(since)),
            "recent": series.recent(now, RECENT_SECONDS),
        }

    def _change(self, name: BackendName, now: float) -> dict[str, Any]:
        change = self._changes.get(name)
        if change is None:
            return {"change": None}
        ago = round(now - change.at, 1)
        return {"change": {"state": change.state.value, "cause": change.cause, "seconds_ago": ago}}

    def backends(self) -> Collection[BackendName]:
        """Return whose hour is kept."""
        return self._backends.keys()


def _backend_series() -> Series:
    return Series(BACKEND_SLOT_SECONDS, int(HOUR_SECONDS / BACKEND_SLOT_SECONDS))
