"""Plain totals since the start, for `/status`: who got how much, and why.

Metrics answer "how fast right now" through Prometheus; this answers "what has happened" to a person with
curl. Bounded by backends and closed enums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prefix_router.observe.events import BackendChanged, EngineSample, Outcome, RequestRecord
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName


class Totals:
    """Counts finished requests. An `Observer`."""

    def __init__(self) -> None:
        self._fleet: frozenset[BackendName] | None = None
        self.requests = 0
        self.by_backend: Counter[BackendName] = Counter()
        self.by_reason: Counter[Reason] = Counter()
        self.by_outcome: Counter[Outcome] = Counter()
        self.retries = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.engine: dict[BackendName, EngineSample] = {}

    def request_finished(self, event: RequestRecord) -> None:
        """Count one request."""
        self.requests += 1
        self.by_outcome[event.outcome] += 1
        self.retries += len(event.retry_causes)
        if event.backend is not None and event.reason is not None:
            if self._fleet is None or event.backend in self._fleet:
                self.by_backend[event.backend] += 1
            self.by_reason[event.reason] += 1
        if event.prompt_tokens is not None and event.cached_tokens is not None:
            # Only responses that report both: the ratio of the sums must mean something.
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens

    def backend_changed(self, event: BackendChanged) -> None:
        """Forget the sample of an engine that went away: it may come back as another process."""
        self.engine.pop(event.backend, None)

    def engine_sampled(self, event: EngineSample) -> None:
        """Keep the newest sample of each backend."""
        if self._fleet is None or event.backend in self._fleet:
            self.engine[event.backend] = event

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Count exactly these backends from now on; those that have left are forgotten, and stay so.

        Before the first call every backend is counted.
        """
        kept = self._fleet = frozenset(names)
        for counts in (self.by_backend, self.engine):
            for name in [name for name in counts if name not in kept]:
                del counts[name]

    def share(self, name: BackendName) -> float:
        """Return the backend's fraction of all requests that were sent to backends of the fleet."""
        total = self.by_backend.total()
        return self.by_backend[name] / total if total else 0.0
