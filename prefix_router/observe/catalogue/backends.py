"""The fleet: what state each backend is in, what it works on, and what its engine says of itself."""

from __future__ import annotations

from prefix_router.observe.catalogue.metric import Group, Kind, Metric

BACKENDS = Group(
    "Backends",
    (
        Metric(
            "in_flight",
            Kind.GAUGE,
            ("backend",),
            "requests",
            "Requests that the backend is working on, read at the moment of the scrape.",
            "Load looks uneven, or a drain does not end.",
        ),
        Metric(
            "backend_state",
            Kind.GAUGE,
            ("backend", "state"),
            "0 or 1",
            "1 for the state the backend is in (`starting`, `healthy`, `ejected`, `down`, `half_open`, "
            "`warming`), 0 for the others.",
            "A backend gets no traffic. Alert on `down` and `ejected`.",
        ),
        Metric(
            "backend_draining",
            Kind.GAUGE,
            ("backend",),
            "0 or 1",
            "1 while the backend is drained through the admin listener: it gets no new request.",
            "A healthy backend gets no traffic. Alert when it stays 1 for longer than maintenance takes.",
        ),
        Metric(
            "backend_key_share_ratio",
            Kind.GAUGE,
            ("backend",),
            "0 to 1",
            "Part of all keys whose home the backend is: its weight among the weights of all, about.",
            "Requests are shared unevenly: is it the ring, a hot key, or a backend that is out?",
        ),
        Metric(
            "health_transitions_total",
            Kind.COUNTER,
            ("backend", "to"),
            "changes",
            "Changes of a backend's state, by the state it entered.",
            "A backend flaps: many changes, few minutes.",
        ),
        Metric(
            "backend_startup_seconds",
            Kind.GAUGE,
            ("backend", "phase"),
            "seconds",
            "From the moment a backend that joined was discovered to `reachable`, `healthy`, `warmed`, "
            "`first_request` and `first_token`. Only for backends that joined after the router's start.",
            "A new replica takes long to become useful: which phase is it?",
        ),
        Metric(
            "engine_requests_running",
            Kind.GAUGE,
            ("backend",),
            "requests",
            "Requests in the engine's batch, as it says itself.",
            "`in_flight` is high: running or waiting?",
        ),
        Metric(
            "engine_requests_waiting",
            Kind.GAUGE,
            ("backend",),
            "requests",
            "Requests in the engine's queue, as it says itself.",
            "Above 0 for long: the threshold is higher than what the engine can run.",
        ),
        Metric(
            "engine_kv_cache_usage_ratio",
            Kind.GAUGE,
            ("backend",),
            "0 to 1",
            "Used part of the engine's KV cache; the mean over its data-parallel ranks.",
            "Near 1: prefixes are evicted before they are used again.",
        ),
        Metric(
            "engine_prefix_cache_queried_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "Tokens the engine looked up in its prefix cache. Restarts from 0 with the engine.",
            "You want the engine's own hit rate, which covers all its requests, whoever sent them.",
        ),
        Metric(
            "engine_prefix_cache_hit_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "Tokens the engine found in its prefix cache. Restarts from 0 with the engine.",
            "As above.",
        ),
    ),
)
