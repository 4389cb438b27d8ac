"""Turns the tallies into Prometheus' metric families when somebody scrapes.

Runs in the scrape's own thread while the event loop goes on counting, so it copies each collection before
walking it. O(series). A sample whose name is not in the catalogue is a KeyError, here and in every test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from prefix_router import __version__
from prefix_router.observe.catalogue import CATALOGUE, NONE, OTHER, PREFIX, Kind, Metric
from prefix_router.observe.expectation import Surprise
from prefix_router.observe.tallies import SHARED_PREFIXES, BackendTally, Histogram, ReasonTally
from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

    from prefix_router.observe.metrics import Metrics

_Value = float | Histogram | tuple[int, float]
"""What one series holds: a number, the buckets of a histogram, or the count and sum of a summary."""


class _Samples:
    """The series of one scrape, by metric."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[tuple[tuple[str, ...], _Value]]] = {m.name: [] for m in CATALOGUE}

    def add(self, name: str, value: _Value, *labels: str) -> None:
        self.by_name[name].append((labels, value))

    def add_if_any(self, name: str, value: float, *labels: str) -> None:
        if value:
            self.add(name, value, *labels)


class Exposition(Collector):
    """Collects one `Metrics` for a prometheus_client registry."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        """Yield every metric of the catalogue, with whatever series it has now."""
        samples = _Samples()
        self._add_backends(samples)
        self._add_reasons(samples)
        self._add_shared_prefixes(samples)
        self._add_router(samples)
        for metric in CATALOGUE:
            yield _family(metric, samples.by_name[metric.name])

    def _add_backends(self, samples: _Samples) -> None:
        metrics = self._metrics
        in_flight, draining, key_shares = metrics.in_flight(), metrics.draining(), metrics.key_shares()
        compared = any(tally.compared for tally in metrics.backends.values())
        startups = metrics.startups()
        for name, tally in metrics.backends.items():
            for phase, seconds in startups.get(name, {}).items():
                samples.add("backend_startup_seconds", seconds, name, phase.value)
            samples.add("in_flight", in_flight.get(name, 0), name)
            samples.add("backend_draining", name in draining, name)
            if name in key_shares:
                samples.add("backend_key_share_ratio", key_shares[name], name)
            for state in BackendState:
                samples.add("backend_state", state is tally.state, name, state.value)
            for state, count in list(tally.transitions.items()):
                samples.add("health_transitions_total", count, name, state.value)
            for metric, value in _counters(tally):
                samples.add(metric, value, name)
            if compared:
                _add_comparison(samples, name, tally)
            _add_traffic(samples, name, tally)
            _add_engine(samples, name, tally)
        _add_traffic(samples, NONE, metrics.unrouted)
        _add_traffic(samples, OTHER, metrics.departed)
        for metric, value in _counters(metrics.departed):
            samples.add_if_any(metric, value, OTHER)
        if metrics.departed.compared:
            _add_comparison(samples, OTHER, metrics.departed)

    def _add_reasons(self, samples: _Samples) -> None:
        for reason, tally in self._metrics.reasons.items():
            label = NONE if reason is None else reason.value
            for name, histogram in (
                ("time_to_first_byte_seconds", tally.first_byte),
                ("time_to_first_token_seconds", tally.first_token),
                ("request_duration_seconds", tally.duration),
            ):
                if histogram.count:  # some twenty series that most reasons never need
                    samples.add(name, histogram, label)
            if reason is not None:
                samples.add("prompt_tokens_total", tally.prompt_tokens, label)
                samples.add("cached_tokens_total", tally.cached_tokens, label)
            _add_shared_tokens(samples, label, tally)

    def _add_shared_prefixes(self, samples: _Samples) -> None:
        for (_, label), tally in zip(SHARED_PREFIXES, self._metrics.shared_prefixes, strict=True):
            samples.add("shared_prefix_requests_total", tally.requests, label)
            if tally.first_token.count:
                samples.add("shared_prefix_first_token_seconds", tally.first_token, label)

    def _add_router(self, samples: _Samples) -> None:
        metrics = self._metrics
        samples.add("added_latency_seconds", metrics.added_latency)
        for cause, count in list(metrics.retries.items()):
            samples.add("retries_total", count, cause.value)
        for code, count in list(metrics.rejected.items()):
            samples.add("rejected_requests_total", count, code)
        samples.add("retries_denied_total", metrics.retries_denied)
        samples.add("waiting", metrics.waiting())
        samples.add("queue_wait_seconds", metrics.queue)
        samples.add("client_disconnects_total", metrics.client_disconnects)
        samples.add("completion_tokens_total", metrics.completion_tokens)
        samples.add("active_requests", metrics.active_requests())
        for source in metrics.discovery():
            samples.add("discovery_up", source.up, source.source)
            samples.add("discovery_backends", source.backends, source.source)
            samples.add("discovery_failures_total", source.failures, source.source)
            if source.last_success_at is not None:
                samples.add("discovery_last_success_timestamp_seconds", source.last_success_at, source.source)
        workers, restarts = metrics.workers()
        samples.add("workers", workers)
        samples.add("worker_restarts_total", restarts)
        samples.add("capture_dropped_total", metrics.capture_dropped())
        sent, dropped = metrics.spans()
        samples.add("trace_spans_sent_total", sent)
        samples.add("trace_spans_dropped_total", dropped)
        for result, count in list(metrics.reloads.items()):
            samples.add("config_reloads_total", count, result)
        for section, end in list(metrics.certificate_ends.items()):
            samples.add("certificate_expiry_timestamp_seconds", end, section)
        for refusal, count in list(metrics.admin_refusals.items()):
            samples.add("admin_refused_requests_total", count, refusal)
        samples.add("config_last_reload_success", metrics.last_reload_succeeded)
        samples.add("config_last_reload_success_timestamp_seconds", metrics.configured_at)
        samples.add("build_info", 1, __version__)


def _counters(tally: BackendTally) -> tuple[tuple[str, int], ...]:
    return (
        ("overflow_total", tally.overflow),
        ("failover_total", tally.failover),
        ("upstream_truncated_total", tally.truncated),
        ("backend_prompt_tokens_total", tally.prompt_tokens),
        ("backend_cached_tokens_total", tally.cached_tokens),
    )


def _add_comparison(samples: _Samples, name: str, tally: BackendTally) -> None:
    """Add what was expected: for all backends or none, because most strategies expect nothing."""
    samples.add("backend_expected_cached_tokens_total", tally.expected_cached_tokens, name)
    samples.add("backend_observed_cached_tokens_total", tally.observed_cached_tokens, name)
    for surprise in Surprise:
        samples.add("backend_cache_surprises_total", tally.surprises[surprise], name, surprise.value)


def _add_shared_tokens(samples: _Samples, reason: str, tally: ReasonTally) -> None:
    """Add all buckets of a reason, or none: most never occur, and many routers do not know what is shared."""
    if any(tokens.prompt for tokens in tally.shared_prefixes):
        for (_, label), tokens in zip(SHARED_PREFIXES, tally.shared_prefixes, strict=True):
            samples.add("shared_prefix_prompt_tokens_total", tokens.prompt, label, reason)
            samples.add("shared_prefix_cached_tokens_total", tokens.cached, label, reason)


def _add_traffic(samples: _Samples, name: str, tally: BackendTally) -> None:
    for (reason, status_class), count in list(tally.requests.items()):
        samples.add("requests_total", count, name, reason, status_class)
    if tally.first_byte_count:
        samples.add("backend_first_byte_seconds", (tally.first_byte_count, tally.first_byte_seconds), name)


def _add_engine(samples: _Samples, name: str, tally: BackendTally) -> None:
    sample = tally.sample
    if sample is None:
        return
    for metric, value in (
        ("engine_requests_running", sample.requests_running),
        ("engine_requests_waiting", sample.requests_waiting),
        ("engine_kv_cache_usage_ratio", sample.kv_cache_usage_ratio),
        ("engine_prefix_cache_queried_tokens_total", sample.prefix_cache_queried_tokens),
        ("engine_prefix_cache_hit_tokens_total", sample.prefix_cache_hit_tokens),
    ):
        if value is not None:
            samples.add(metric, value, name)


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], _Value]]) -> Family:
    name, text, labels = PREFIX + metric.name, metric.help, metric.labels
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, value in samples:
            assert isinstance(value, Histogram)
            histogram.add_metric(values, value.cumulative(), value.sum)
        return histogram
    if metric.kind is Kind.SUMMARY:
        summary = SummaryMetricFamily(name, text, labels=labels)
        for values, value in samples:
            assert isinstance(value, tuple)
            summary.add_metric(values, *value)
        return summary
    plain: CounterMetricFamily | GaugeMetricFamily
    plain = (CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily)(
        name, text, labels=labels
    )
    for values, value in samples:
        assert isinstance(value, int | float)
        plain.add_metric(values, value)
    return plain
