"""Every metric the router exports: name, type, labels and meaning, in one table.

The table is the contract with dashboards and alerts. `observe.exposition` refuses to export a name that is
not in it, and docs/metrics.md is tested against it, so code and text cannot drift apart.

Labels come from closed sets only: the names of the fleet, `Reason`, `BackendState`, `RetryCause`,
`ErrorCode`, `Surprise`, the buckets of shared prefixes, and a few status classes. Models, paths and clients
are never labels: whoever can invent values could fill the memory of the router and of Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PREFIX = "prefix_router_"

NONE = "none"
"""The label value for "no backend" and "no reason": the router answered by itself."""

OTHER = "other"
"""The label value for what is outside a closed set, such as a backend that has left."""


class Kind(Enum):
    """The type of a metric, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is what a dashboard asks for, without `PREFIX`; counters end in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_COUNTER, _GAUGE, _HISTOGRAM, _SUMMARY = Kind

CATALOGUE = (
    Metric(
        "requests_total",
        _COUNTER,
        ("backend", "reason", "status_class"),
        "Finished requests. backend and reason are none where the router answered by itself.",
    ),
    Metric(
        "in_flight", _GAUGE, ("backend",), "Requests that the backend is working on, read at scrape time."
    ),
    Metric(
        "active_requests",
        _GAUGE,
        (),
        "Requests that the router has begun to serve and not ended, read at scrape time.",
    ),
    Metric(
        "backend_state", _GAUGE, ("backend", "state"), "1 for the state the backend is in, 0 for the others."
    ),
    Metric(
        "backend_draining",
        _GAUGE,
        ("backend",),
        "1 while the backend is drained: it gets no new request; else 0.",
    ),
    Metric(
        "health_transitions_total", _COUNTER, ("backend", "to"), "Changes of a backend's state, by new state."
    ),
    Metric(
        "time_to_first_byte_seconds",
        _HISTOGRAM,
        ("reason",),
        "From the request head read to the first byte of the response body.",
    ),
    Metric(
        "time_to_first_token_seconds",
        _HISTOGRAM,
        ("reason",),
        "From the request head read to the first generated content of a stream.",
    ),
    Metric(
        "request_duration_seconds",
        _HISTOGRAM,
        ("reason",),
        "From the request head read to the end of the response.",
    ),
    Metric(
        "added_latency_seconds",
        _HISTOGRAM,
        (),
        "The router's own work on a routed request: deciding, and passing on the response head.",
    ),
    Metric(
        "backend_first_byte_seconds",
        _SUMMARY,
        ("backend",),
        "Time to first byte by backend, as sum and count.",
    ),
    Metric(
        "overflow_total", _COUNTER, ("home",), "Requests sent away from a home at its concurrency threshold."
    ),
    Metric("failover_total", _COUNTER, ("home",), "Requests sent away from a home that could not be used."),
    Metric(
        "retries_total", _COUNTER, ("cause",), "Further attempts for a request, by what made them necessary."
    ),
    Metric(
        "retries_denied_total",
        _COUNTER,
        (),
        "Requests that got no further attempt because the retry budget was used up.",
    ),
    Metric("waiting", _GAUGE, (), "Requests that wait for a free backend, read at scrape time."),
    Metric(
        "queue_wait_seconds",
        _HISTOGRAM,
        (),
        "Time in line of requests that had to wait for a free backend, whether or not they got one.",
    ),
    Metric(
        "client_disconnects_total",
        _COUNTER,
        (),
        "Requests whose client left before the response was complete.",
    ),
    Metric(
        "upstream_truncated_total",
        _COUNTER,
        ("backend",),
        "Responses that a backend broke off after the first byte.",
    ),
    Metric(
        "rejected_requests_total", _COUNTER, ("code",), "Requests answered with an error of the router's own."
    ),
    Metric(
        "prompt_tokens_total",
        _COUNTER,
        ("reason",),
        "Prompt tokens of responses that also report their cached tokens.",
    ),
    Metric(
        "cached_tokens_total",
        _COUNTER,
        ("reason",),
        "Of prompt_tokens_total: found in the backend's prefix cache.",
    ),
    Metric("completion_tokens_total", _COUNTER, (), "Generated tokens, of all responses that report them."),
    Metric("backend_prompt_tokens_total", _COUNTER, ("backend",), "prompt_tokens_total by backend."),
    Metric("backend_cached_tokens_total", _COUNTER, ("backend",), "cached_tokens_total by backend."),
    Metric(
        "shared_prefix_requests_total",
        _COUNTER,
        ("shared_prefix",),
        "Finished requests whose prompt was compared with those before it, by how many tokens they share.",
    ),
    Metric(
        "shared_prefix_prompt_tokens_total",
        _COUNTER,
        ("shared_prefix", "reason"),
        "prompt_tokens_total of these requests.",
    ),
    Metric(
        "shared_prefix_cached_tokens_total",
        _COUNTER,
        ("shared_prefix", "reason"),
        "Of shared_prefix_prompt_tokens_total: found in the backend's prefix cache.",
    ),
    Metric(
        "shared_prefix_first_token_seconds",
        _HISTOGRAM,
        ("shared_prefix",),
        "time_to_first_token_seconds of these requests.",
    ),
    Metric(
        "backend_expected_cached_tokens_total",
        _COUNTER,
        ("backend",),
        "Tokens that the strategy expected to be cached, of responses that report how many were.",
    ),
    Metric(
        "backend_observed_cached_tokens_total",
        _COUNTER,
        ("backend",),
        "Cached tokens of the requests in backend_expected_cached_tokens_total.",
    ),
    Metric(
        "backend_cache_surprises_total",
        _COUNTER,
        ("backend", "kind"),
        "Requests that found 256 or more tokens fewer (cold) or more (warm) cached than expected.",
    ),
    Metric(
        "engine_requests_running", _GAUGE, ("backend",), "Requests in the engine's batch, as it says itself."
    ),
    Metric(
        "engine_requests_waiting", _GAUGE, ("backend",), "Requests in the engine's queue, as it says itself."
    ),
    Metric(
        "engine_kv_cache_usage_ratio", _GAUGE, ("backend",), "Used part of the engine's KV cache, 0 to 1."
    ),
    Metric(
        "engine_prefix_cache_queried_tokens_total",
        _COUNTER,
        ("backend",),
        "Tokens the engine looked up in its prefix cache; restarts from 0 with the engine.",
    ),
    Metric(
        "engine_prefix_cache_hit_tokens_total",
        _COUNTER,
        ("backend",),
        "Tokens the engine found in its prefix cache; restarts from 0 with the engine.",
    ),
    Metric(
        "config_reloads_total",
        _COUNTER,
        ("result",),
        "Attempts to read and apply the configuration again, by success or failure.",
    ),
    Metric(
        "config_last_reload_success",
        _GAUGE,
        (),
        "1 when the last configuration that was read is in force, 0 when it was refused.",
    ),
    Metric(
        "config_last_reload_success_timestamp_seconds",
        _GAUGE,
        (),
        "Unix time at which the configuration in force was applied; the start counts.",
    ),
    Metric("workers", _GAUGE, (), "Processes that take connections on the data port."),
    Metric("worker_restarts_total", _COUNTER, (), "Workers that died and were replaced by another."),
    Metric(
        "capture_dropped_total",
        _COUNTER,
        (),
        "Requests that a capture should have and has not: the writer was behind, or the file is full.",
    ),
    Metric("build_info", _GAUGE, ("version",), "Always 1; the version is the label."),
)
