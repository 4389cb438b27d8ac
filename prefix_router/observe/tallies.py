"""What the metrics are counted in: plain numbers, grouped by what they belong to.

A request touches one `BackendTally` and one `ReasonTally`, found by two dictionary lookups, and then only
attributes; where it is known how much of its prompt came before, also one bucket of shared prefixes, found
by a bisection of six. prometheus_client's own children take a lock and two calls for each number, which for
the dozen numbers of a request is several times the cost. Only the event loop writes; a scrape reads from its
own thread and may see a request half counted, never a broken number.

Everything about a backend hangs on one object, so that dropping it removes all its series at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from prefix_router.observe.expectation import Surprise
from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from prefix_router.observe.events import EngineSample

LATENCY_BOUNDS_SECONDS = (
    0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
"""From a warm prefix on an idle backend (some 20 ms) to a fleet that drowns."""

DURATION_BOUNDS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""From an embedding to a long generation."""

ADDED_BOUNDS_SECONDS = (
    50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3,
)  # fmt: skip
"""From nothing worth noting to an event loop that is blocked."""


QUEUE_BOUNDS_SECONDS = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a place that was just becoming free to the patience of a client."""

SHARED_PREFIX_LATENCY_BOUNDS_SECONDS = (0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Fewer than for all requests, because there are six of this histogram: enough to tell warm from cold."""

SHARED_PREFIXES = (
    (0, "nothing"),
    (1, "under 256"),
    (256, "256 to 1k"),
    (1024, "1k to 4k"),
    (4096, "4k to 16k"),
    (16_384, "over 16k"),
)
"""The buckets of `shared_tokens`: where each begins, and its label. `prefix-router analyze` has the same."""

_SHARED_PREFIX_STARTS = tuple(start for start, _ in SHARED_PREFIXES)


class Histogram:
    """Observations counted into buckets with fixed upper bounds, which are inclusive as in Prometheus."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value. O(log buckets)."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Return (upper bound, observations up to it) for each bucket, the last one `+Inf`."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts.copy()), strict=True))


def shared_prefix_bucket(shared_tokens: int) -> int:
    """Return the index in `SHARED_PREFIXES` of the bucket for so many tokens, 0 or more."""
    return bisect_right(_SHARED_PREFIX_STARTS, shared_tokens) - 1


@dataclass(slots=True, eq=False)
class BackendTally:
    """The numbers of one backend since it joined. `requests` is by reason and status class."""

    state: BackendState = BackendState.STARTING
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    transitions: Counter[BackendState] = field(default_factory=Counter)
    first_byte_count: int = 0
    first_byte_seconds: float = 0.0
    overflow: int = 0
    failover: int = 0
    truncated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    expected_cached_tokens: int = 0
    observed_cached_tokens: int = 0
    surprises: Counter[Surprise] = field(default_factory=Counter)
    sample: EngineSample | None = None

    @property
    def compared(self) -> bool:
        """Whether anything was expected to be cached, or was cached where nothing was expected."""
        return self.expected_cached_tokens > 0 or self.observed_cached_tokens > 0


def _latency() -> Histogram:
    return Histogram(LATENCY_BOUNDS_SECONDS)


@dataclass(slots=True, eq=False)
class TokenTally:
    """Tokens of prompts, and how many of them were cached."""

    prompt: int = 0
    cached: int = 0


@dataclass(slots=True, eq=False)
class SharedPrefixTally:
    """The numbers of all requests in one bucket of shared prefixes."""

    requests: int = 0
    first_token: Histogram = field(default_factory=lambda: Histogram(SHARED_PREFIX_LATENCY_BOUNDS_SECONDS))


@dataclass(slots=True, eq=False)
class ReasonTally:
    """The numbers of all requests that were routed for one reason. `shared_prefixes` is by bucket."""

    first_byte: Histogram = field(default_factory=_latency)
    first_token: Histogram = field(default_factory=_latency)
    duration: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS_SECONDS))
    prompt_tokens: int = 0
    cached_tokens: int = 0
    shared_prefixes: tuple[TokenTally, ...] = field(
        default_factory=lambda: tuple(TokenTally() for _ in SHARED_PREFIXES)
    )
