"""What came out of a simulation: an outcome for each request, and one row of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from prefix_router.routing.decision import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.plan import FleetPlan
    from prefix_router.fleetsim.request import SimulatedRequest

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
"""The quantiles of a row by their names."""


class Outcome(NamedTuple):
    """How one request ended. Times are seconds from the start of the workload.

    replica: the one that answered, or had it last; None when no replica could take it.
    cached_tokens: prompt tokens that were not computed.
    first_token_seconds: None when there never was one.
    reason: of the last decision; None when there was none.
    failed: whether the request did not get its whole answer.
    """

    arrival_seconds: float
    replica: str | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    first_token_seconds: float | None
    end_seconds: float
    reason: Reason | None
    failed: bool = False

    @classmethod
    def of(
        cls,
        request: SimulatedRequest,
        end_seconds: float,
        replica: str | None = None,
        cached_tokens: int = 0,
        first_token_seconds: float | None = None,
        reason: Reason | None = None,
        *,
        failed: bool = False,
    ) -> Outcome:
        """The outcome of `request`."""
        return cls(
            request.arrival_seconds,
            replica,
            request.prompt_tokens,
            request.output_tokens,
            cached_tokens,
            first_token_seconds,
            end_seconds,
            reason,
            failed,
        )


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The outcomes, in the order of the requests.

    preemptions: how often an engine took a running request's blocks away. in_flight_at_end: what the routers
    still counted as in flight when all requests had ended; anything but 0 is a defect of the simulation.
    """

    plan: FleetPlan
    outcomes: tuple[Outcome, ...]
    preemptions: int = 0
    in_flight_at_end: int = 0

    @property
    def answered(self) -> list[Outcome]:
        """Those that got their whole answer."""
        return [outcome for outcome in self.outcomes if not outcome.failed]

    def hit_rate(self) -> float:
        """Prompt tokens of answered requests that were cached, as a share of all of them."""
        answered = self.answered
        prompt_tokens = sum(outcome.prompt_tokens for outcome in answered)
        return _share(sum(outcome.cached_tokens for outcome in answered), prompt_tokens)

    def ttft_seconds(self) -> list[float]:
        """Time to first token of each answered request, as its client sees it, in ascending order."""
        return sorted(
            outcome.first_token_seconds - outcome.arrival_seconds
            for outcome in self.answered
            if outcome.first_token_seconds is not None
        )

    def row(self, workload: str, load: float) -> dict[str, Any]:
        """The row of a table, ready for JSON.

        workload: its name. load: requests per second, or whatever else the workload's load is stated in.
        hit_rate and the times are over answered requests. share_max: share of the requests that the busiest
        replica got. overflow_rate: share of all requests with that reason. throughput: generated tokens of
        answered requests, divided by the time from the first arrival to the last end.
        """
        answered = self.answered
        e2e_seconds = sorted(outcome.end_seconds - outcome.arrival_seconds for outcome in answered)
        counts = Counter(outcome.replica for outcome in self.outcomes if outcome.replica is not None)
        overflows = sum(outcome.reason is Reason.OVERFLOW for outcome in self.outcomes)
        return {
            "workload": workload,
            "strategy": self.plan.strategy,
            "load": load,
            "routers": self.plan.routers,
            "requests": len(self.outcomes),
            "failed": len(self.outcomes) - len(answered),
            "hit_rate": round(self.hit_rate(), 4),
            "ttft_ms": _quantiles_ms(self.ttft_seconds()),
            "e2e_ms": _quantiles_ms(e2e_seconds),
            "share_max": round(_share(max(counts.values(), default=0), counts.total()), 4),
            "overflow_rate": round(_share(overflows, len(self.outcomes)), 4),
            "throughput_tokens_per_second": round(_throughput(answered), 1),
        }


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all values do not exceed; None of no values."""
    if not ascending:
        return None
    return ascending[max(ceil(share * len(ascending)), 1) - 1]


def _quantiles_ms(ascending_seconds: Sequence[float]) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for name, share in QUANTILES.items():
        seconds = quantile(ascending_seconds, share)
        row[name] = None if seconds is None else round(seconds * 1e3, 2)
    return row


def _throughput(answered: Sequence[Outcome]) -> float:
    if not answered:
        return 0.0
    start = min(outcome.arrival_seconds for outcome in answered)
    end = max(outcome.end_seconds for outcome in answered)
    return _share(sum(outcome.output_tokens for outcome in answered), end - start)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
