"""What prompts share, what was found cached, and what was expected to be."""

from __future__ import annotations

from prefix_router.observe.catalogue.metric import Group, Kind, Metric

CACHES = Group(
    "Caches",
    (
        Metric(
            "prompt_tokens_total",
            Kind.COUNTER,
            ("reason",),
            "tokens",
            "Prompt tokens of responses that also report their cached tokens.",
            "Hit rate, as the denominator.",
        ),
        Metric(
            "cached_tokens_total",
            Kind.COUNTER,
            ("reason",),
            "tokens",
            "Of `prompt_tokens_total`: found in the backend's prefix cache.",
            "Hit rate, as the numerator.",
        ),
        Metric(
            "completion_tokens_total",
            Kind.COUNTER,
            (),
            "tokens",
            "Generated tokens, of all responses that report them.",
            "You want throughput.",
        ),
        Metric(
            "backend_prompt_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "`prompt_tokens_total` by backend.",
            "Hit rate of one backend.",
        ),
        Metric(
            "backend_cached_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "`cached_tokens_total` by backend.",
            "A backend with no hits at all has prefix caching off, or has just restarted.",
        ),
        Metric(
            "shared_prefix_requests_total",
            Kind.COUNTER,
            ("shared_prefix",),
            "requests",
            "Finished requests whose prompt was compared with earlier ones, by how many tokens they share.",
            "You want to know what there is to gain at all.",
        ),
        Metric(
            "shared_prefix_prompt_tokens_total",
            Kind.COUNTER,
            ("shared_prefix", "reason"),
            "tokens",
            "`prompt_tokens_total` of these requests.",
            "Hit rate of prompts that share equally much, as the denominator.",
        ),
        Metric(
            "shared_prefix_cached_tokens_total",
            Kind.COUNTER,
            ("shared_prefix", "reason"),
            "tokens",
            "Of `shared_prefix_prompt_tokens_total`: found in the backend's prefix cache.",
            "As the numerator. Low for long shared prefixes: routing sends them elsewhere (compare "
            "reasons), or engines evict.",
        ),
        Metric(
            "shared_prefix_first_token_seconds",
            Kind.HISTOGRAM,
            ("shared_prefix",),
            "seconds",
            "`time_to_first_token_seconds` of these requests.",
            "You want to know what a cached prefix saves.",
        ),
        Metric(
            "backend_expected_cached_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "Tokens that the strategy expected to be cached, of responses that report how many were. Scaled"
            " to the engine's tokens.",
            "Strategy `adaptive` decides oddly: is its view of the caches right?",
        ),
        Metric(
            "backend_observed_cached_tokens_total",
            Kind.COUNTER,
            ("backend",),
            "tokens",
            "Cached tokens of the requests in `backend_expected_cached_tokens_total`.",
            "As above.",
        ),
        Metric(
            "backend_cache_surprises_total",
            Kind.COUNTER,
            ("backend", "kind"),
            "requests",
            "Requests that found 256 or more tokens fewer (`cold`) or more (`warm`) cached than expected.",
            "`cold` for one backend: it does not keep what it is given; see "
            "[operations.md](operations.md#a-backend-answers-cold).",
        ),
    ),
)
