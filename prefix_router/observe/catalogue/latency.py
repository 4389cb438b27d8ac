"""How long what took, from the moment the request head was read."""

from __future__ import annotations

from prefix_router.observe.catalogue.metric import Group, Kind, Metric

LATENCY = Group(
    "Times",
    (
        Metric(
            "time_to_first_byte_seconds",
            Kind.HISTOGRAM,
            ("reason",),
            "seconds",
            "From the request head read to the first byte of the response body, streaming or not.",
            "Users wait. Compare `affinity` with `overflow`: the difference is the price of a cold prefix.",
        ),
        Metric(
            "time_to_first_token_seconds",
            Kind.HISTOGRAM,
            ("reason",),
            "seconds",
            "From the request head read to the first generated content of a stream: not a comment, a ping or "
            "a bare role.",
            "As above, for streams only. This is what a user feels.",
        ),
        Metric(
            "request_duration_seconds",
            Kind.HISTOGRAM,
            ("reason",),
            "seconds",
            "From the request head read to the end of the response.",
            "Generations take long although the first token is quick: the engines decode slowly.",
        ),
        Metric(
            "added_latency_seconds",
            Kind.HISTOGRAM,
            (),
            "seconds",
            "The router's own work on a routed request: deciding, and passing on the response head.",
            "You suspect the router. Above a few milliseconds its event loop is busy or starved of CPU.",
        ),
        Metric(
            "backend_first_byte_seconds",
            Kind.SUMMARY,
            ("backend",),
            "seconds",
            "Time to first byte by backend: sum and count, for the mean.",
            "One backend is slower than its peers.",
        ),
    ),
)
