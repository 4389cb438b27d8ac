"""What came in, what became of it, and where it had to go instead."""

from __future__ import annotations

from prefix_router.observe.catalogue.metric import Group, Kind, Metric

REQUESTS = Group(
    "Requests",
    (
        Metric(
            "requests_total",
            Kind.COUNTER,
            ("backend", "reason", "status_class"),
            "requests",
            "Finished requests. `backend` and `reason` are `none` where the router answered by itself.",
            "You want traffic, error rate, or shares.",
        ),
        Metric(
            "active_requests",
            Kind.GAUGE,
            (),
            "requests",
            "Requests that the router has begun to serve and not ended, read at the moment of the scrape.",
            "The router drains: this is what it waits for.",
        ),
        Metric(
            "rejected_requests_total",
            Kind.COUNTER,
            ("code",),
            "requests",
            "Requests answered with an error of the router's own, by its `code`.",
            "Clients report errors that no backend has logged.",
        ),
        Metric(
            "client_disconnects_total",
            Kind.COUNTER,
            (),
            "requests",
            "Requests whose client left before the response was complete.",
            "Clients have short timeouts, or users give up.",
        ),
        Metric(
            "upstream_truncated_total",
            Kind.COUNTER,
            ("backend",),
            "responses",
            "Responses that a backend broke off after the first byte; the client's connection was aborted.",
            "Anything above 0: an engine crashes, or something between cuts connections.",
        ),
        Metric(
            "overflow_total",
            Kind.COUNTER,
            ("home",),
            "requests",
            "Requests sent away from a home that was at its concurrency threshold.",
            "The hit rate falls under load: raise the threshold, or add a backend. One `home` alone: a hot "
            "prefix.",
        ),
        Metric(
            "failover_total",
            Kind.COUNTER,
            ("home",),
            "requests",
            "Requests sent away from a home that could not be used.",
            "A backend is out, and its keys run cold on the others.",
        ),
        Metric(
            "retries_total",
            Kind.COUNTER,
            ("cause",),
            "attempts",
            "Further attempts for a request: `connect`, `reset`, `reused_connection`, `back_pressure`.",
            "Latency has a second hump. `reused_connection` alone: idle connections live too long here.",
        ),
        Metric(
            "retries_denied_total",
            Kind.COUNTER,
            (),
            "requests",
            "Requests that got no further attempt: the retry budget (`retry.budget_ratio`) was used up.",
            "Anything above 0: much of the fleet fails or refuses at once.",
        ),
        Metric(
            "waiting",
            Kind.GAUGE,
            (),
            "requests",
            "Requests that wait for a free backend, read at the moment of the scrape.",
            "Above 0 for long: the limits on requests in flight are tight, or the fleet is too small.",
        ),
        Metric(
            "queue_wait_seconds",
            Kind.HISTOGRAM,
            (),
            "seconds",
            "Time in line of requests that had to wait, whether or not they got a backend. The other times "
            "hold it too.",
            "Users wait, and the engines say that they are quick.",
        ),
    ),
)
