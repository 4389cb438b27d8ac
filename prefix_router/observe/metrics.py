"""Counts events for Prometheus.

`Metrics` is an Observer: a few additions per finished request. Prometheus asks seldom, so all work of
naming, labelling and formatting is done in `render`, which the caller runs off the event loop.

Bounded: one tally per backend of the fleet, per reason and per bucket of shared prefixes. A backend outside
the fleet (it left while its last request ran) is counted under the name `other`, so that nothing ever brings
back series of a backend that is gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from prefix_router.observe.catalogue import NONE, OTHER
from prefix_router.observe.events import AdminRefusal, Outcome, RetryCause
from prefix_router.observe.expectation import compare
from prefix_router.observe.exposition import Exposition
from prefix_router.observe.tallies import (
    ADDED_BOUNDS_SECONDS,
    QUEUE_BOUNDS_SECONDS,
    SHARED_PREFIXES,
    BackendTally,
    Histogram,
    ReasonTally,
    SharedPrefixTally,
    shared_prefix_bucket,
)
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName, BackendState

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, DiscoveryStatus, EngineSample, RequestRecord
    from prefix_router.observe.startup import StartupPhase

_REASONS = {reason: reason.value for reason in Reason}
_STATUS_CLASSES = {2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_ABORTED = frozenset((Outcome.CLIENT_DISCONNECTED, Outcome.UPSTREAM_TRUNCATED))


class Metrics:
    """The router's metrics. Every method but `render` must be called from the event loop.

    in_flight: returns the live number of leases per backend. draining: the names of drained backends.
    key_shares: the part of all keys whose home each backend is.
    active_requests: how many requests are being served. waiting: how many of them wait for a free backend.
    workers: how many processes serve clients, and how many had to be replaced so far. capture_dropped: how
    many requests a capture has lost. spans: how many were sent to a collector, and how many were lost.
    discovery: how each source of backends does. startups: what each backend that joined has reached, in
    seconds. They are called by `render`, in its thread.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        in_flight: Callable[[], Mapping[str, int]],
        draining: Callable[[], Collection[str]] = frozenset,
        active_requests: Callable[[], int] = int,
        waiting: Callable[[], int] = int,
        workers: Callable[[], tuple[int, int]] = lambda: (1, 0),
        capture_dropped: Callable[[], int] = int,
        spans: Callable[[], tuple[int, int]] = lambda: (0, 0),
        key_shares: Callable[[], Mapping[BackendName, float]] = dict,
        discovery: Callable[[], Iterable[DiscoveryStatus]] = tuple,
        startups: Callable[[], Mapping[BackendName, Mapping[StartupPhase, float]]] = dict,
    ) -> None:
        self.in_flight = in_flight
        self.draining = draining
        self.active_requests = active_requests
        self.waiting = waiting
        self.workers = workers
        self.capture_dropped = capture_dropped
        self.spans = spans
        self.key_shares = key_shares
        self.discovery = discovery
        self.startups = startups
        self.backends: dict[BackendName, BackendTally] = {}
        self.unrouted = BackendTally()
        self.departed = BackendTally()
        self.reasons: dict[Reason | None, ReasonTally] = {reason: ReasonTally() for reason in (None, *Reason)}
        self.shared_prefixes = tuple(SharedPrefixTally() for _ in SHARED_PREFIXES)
        self.added_latency = Histogram(ADDED_BOUNDS_SECONDS)
        self.retries: Counter[RetryCause] = Counter(dict.fromkeys(RetryCause, 0))
        self.rejected: Counter[str] = Counter({code.value: 0 for code in ErrorCode})
        self.queue = Histogram(QUEUE_BOUNDS_SECONDS)
        self.retries_denied = 0
        self.client_disconnects = 0
        self.completion_tokens = 0
        self.reloads: Counter[str] = Counter({"success": 0, "failure": 0})
        self.last_reload_succeeded = True
        self.certificate_ends: dict[str, float] = {}
        """When each certificate in use ends, in Unix seconds, by section of the settings."""
        self.admin_refusals: Counter[str] = Counter({cause.value: 0 for cause in AdminRefusal})
        self.configured_at = time.time()
        self._registry = CollectorRegistry()
        self._registry.register(Exposition(self))
        ProcessCollector(registry=self._registry)

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Export exactly these backends from now on; those that stay keep their numbers."""
        self.backends = {name: self.backends.get(name) or BackendTally() for name in names}

    def request_finished(self, event: RequestRecord) -> None:
        """Count one finished request."""
        reason = self.reasons[event.reason]
        backend = self.unrouted if event.backend is None else self._backend(event.backend)
        backend.requests[_reason(event), _status_class(event)] += 1
        reason.duration.observe(event.duration_seconds)
        if event.backend is not None:
            self.added_latency.observe(event.router_seconds)
        if event.first_byte_seconds is not None:
            reason.first_byte.observe(event.first_byte_seconds)
            backend.first_byte_count += 1
            backend.first_byte_seconds += event.first_byte_seconds
        if event.first_token_seconds is not None:
            reason.first_token.observe(event.first_token_seconds)
        if event.home is not None:
            if event.reason is Reason.OVERFLOW:
                self._backend(event.home).overflow += 1
            elif event.reason is Reason.FAILOVER:
                self._backend(event.home).failover += 1
        self._count_tokens(event, reason, backend)
        if event.shared_tokens is not None:
            self._count_shared_prefix(event, event.shared_tokens, reason, backend)
        if (
            event.outcome is not Outcome.COMPLETED
            or event.error_code is not None
            or event.queue_seconds is not None
            or event.retry_causes
            or event.retry_denied
        ):
            self._count_trouble(event, backend)

    def backend_changed(self, event: BackendChanged) -> None:
        """Count one health transition. A backend that is down has no engine whose sample could be true."""
        backend = self.backends.get(event.backend)
        if backend is None:
            return
        backend.state = event.after
        backend.transitions[event.after] += 1
        if event.after is BackendState.DOWN:
            backend.sample = None

    def engine_sampled(self, event: EngineSample) -> None:
        """Keep the last sample of one backend."""
        backend = self.backends.get(event.backend)
        if backend is not None:
            backend.sample = event

    def configuration_reloaded(self, *, success: bool) -> None:
        """Count one attempt to change the configuration."""
        self.reloads["success" if success else "failure"] += 1
        self.last_reload_succeeded = success
        if success:
            self.configured_at = time.time()

    def admin_refused(self, cause: AdminRefusal) -> None:
        """Count one request that the admin listener did not serve."""
        self.admin_refusals[cause.value] += 1

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format. Takes milliseconds: keep it off the event loop."""
        return generate_latest(self._registry)

    def _backend(self, name: BackendName) -> BackendTally:
        return self.backends.get(name) or self.departed

    def _count_tokens(self, event: RequestRecord, reason: ReasonTally, backend: BackendTally) -> None:
        if event.completion_tokens is not None:
            self.completion_tokens += event.completion_tokens
        if event.prompt_tokens is None or event.cached_tokens is None:
            return  # one without the other would make cached / prompt a wrong hit rate
        reason.prompt_tokens += event.prompt_tokens
        reason.cached_tokens += event.cached_tokens
        backend.prompt_tokens += event.prompt_tokens
        backend.cached_tokens += event.cached_tokens

    def _count_shared_prefix(
        self, event: RequestRecord, shared_tokens: int, reason: ReasonTally, backend: BackendTally
    ) -> None:
        bucket = shared_prefix_bucket(shared_tokens)
        shared_prefix = self.shared_prefixes[bucket]
        shared_prefix.requests += 1
        if event.first_token_seconds is not None:
            shared_prefix.first_token.observe(event.first_token_seconds)
        if event.prompt_tokens is None or event.cached_tokens is None:
            return
        tokens = reason.shared_prefixes[bucket]
        tokens.prompt += event.prompt_tokens
        tokens.cached += event.cached_tokens
        comparison = compare(event)
        if comparison is None:
            return
        backend.expected_cached_tokens += comparison.expected
        backend.observed_cached_tokens += comparison.observed
        surprise = comparison.surprise
        if surprise is not None:
            backend.surprises[surprise] += 1

    def _count_trouble(self, event: RequestRecord, backend: BackendTally) -> None:
        for cause in event.retry_causes:
            self.retries[cause] += 1
        self.retries_denied += event.retry_denied
        if event.queue_seconds is not None:
            self.queue.observe(event.queue_seconds)
        if event.error_code is not None:
            self.rejected[event.error_code if event.error_code in self.rejected else OTHER] += 1
        if event.outcome is Outcome.CLIENT_DISCONNECTED:
            self.client_disconnects += 1
        elif event.outcome is Outcome.UPSTREAM_TRUNCATED:
            backend.truncated += 1


def _reason(event: RequestRecord) -> str:
    return NONE if event.reason is None else _REASONS[event.reason]


def _status_class(event: RequestRecord) -> str:
    if event.outcome in _ABORTED:
        return "aborted"
    return _STATUS_CLASSES.get(event.status // 100, OTHER)
