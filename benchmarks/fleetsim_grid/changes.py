"""What a replica that joins or leaves does to the caches of the others.

Each run is compared with one of the same requests in which nothing happens. A prefix is what the first blocks
of a request hold, or its conversation. It has moved when the first request for it after the change goes
elsewhere than the last one before. Strategies that look at the load move some prefixes at any time, so the
share that moves at the same moment in the quiet run stands beside it.

Recovered is the fleet when, from then on, the next requests hit as much as they do in the quiet run, give or
take two points. To be compared with the time in which an engine computes as many tokens as its cache holds:
what a cold cache takes to be full.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from benchmarks.fleetsim_grid import cases
from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.plan import FleetChange, FleetEvent
from prefix_router.fleetsim.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.result import FleetResult, Outcome

WINDOW_REQUESTS = 250
_STEP_REQUESTS = 25
_HIT_RATE_MARGIN = 0.02


class Change(Enum):
    """From seven replicas to eight, or back."""

    JOIN = "join"
    LEAVE = "leave"

    @property
    def replicas(self) -> int:
        """How many there are before."""
        return cases.REPLICAS if self is Change.JOIN else cases.REPLICAS + 1


def changes(requests: Sequence[SimulatedRequest], strategy: str, change: Change) -> dict[str, Any]:
    """What the change does to `requests`, in order of arrival, at the middle of them."""
    middle = len(requests) // 2
    seconds = requests[middle].arrival_seconds - 1e-6
    replica = cases.REPLICAS if change is Change.JOIN else 0
    event = FleetEvent(seconds, FleetChange(change.value), replica)
    quiet = simulate(requests, cases.plan(strategy, replicas=change.replicas))
    changed = simulate(requests, cases.plan(strategy, replicas=change.replicas, events=(event,)))
    recovered = recovered_after(quiet.outcomes[middle:], changed.outcomes[middle:])
    return {
        "strategy": strategy,
        "change": change.value,
        "load": cases.CHANGES_LOAD,
        "moved_share": round(moved_share(requests, changed, middle), 4),
        "moved_share_if_nothing_happens": round(moved_share(requests, quiet, middle), 4),
        "recovery_seconds": None if recovered is None else round(recovered, 1),
        "refill_seconds": round(refill_seconds(quiet, change.replicas), 1),
        "deepest_loss": round(_deepest_loss(quiet.outcomes[middle:], changed.outcomes[middle:]), 4),
        "failed": len(changed.outcomes) - len(changed.answered),
    }


def moved_share(requests: Sequence[SimulatedRequest], result: FleetResult, middle: int) -> float:
    """Of the prefixes that were there before request number `middle` and came again, those that moved."""
    before: dict[object, str | None] = {}
    after: dict[object, str | None] = {}
    for number, (request, outcome) in enumerate(zip(requests, result.outcomes, strict=True)):
        prefix = _prefix(request)
        if number < middle:
            before[prefix] = outcome.replica
        elif prefix in before:
            after.setdefault(prefix, outcome.replica)
    moved = sum(before[prefix] != replica for prefix, replica in after.items())
    return moved / max(len(after), 1)


def recovered_after(quiet: Sequence[Outcome], changed: Sequence[Outcome]) -> float | None:
    """Seconds from the first of these requests to where hit rates are as before; None if they never are."""
    ends: float | None = 0.0
    for start, loss in _losses(quiet, changed):
        if loss > _HIT_RATE_MARGIN:
            ends = None
        elif ends is None:
            ends = changed[start].arrival_seconds - changed[0].arrival_seconds
    return ends


def refill_seconds(quiet: FleetResult, replicas: int) -> float:
    """How long an engine takes to compute as many tokens as its cache holds."""
    computed = sum(outcome.prompt_tokens - outcome.cached_tokens for outcome in quiet.outcomes)
    span = quiet.outcomes[-1].arrival_seconds - quiet.outcomes[0].arrival_seconds
    return PROFILES[DEFAULT_PROFILE].kv_tokens * replicas * span / computed


def _deepest_loss(quiet: Sequence[Outcome], changed: Sequence[Outcome]) -> float:
    return max(loss for _, loss in _losses(quiet, changed))


def _losses(quiet: Sequence[Outcome], changed: Sequence[Outcome]) -> list[tuple[int, float]]:
    """For windows of requests, where each starts and how much less it hits than when nothing happens."""
    starts = range(0, len(quiet) - WINDOW_REQUESTS + 1, _STEP_REQUESTS)
    return [(start, _hit_rate(quiet, start) - _hit_rate(changed, start)) for start in starts]


def _hit_rate(outcomes: Sequence[Outcome], start: int) -> float:
    window = outcomes[start : start + WINDOW_REQUESTS]
    return sum(outcome.cached_tokens for outcome in window) / sum(o.prompt_tokens for o in window)


def _prefix(request: SimulatedRequest) -> object:
    # Where answers are not reused, each request has a session of its own: its first block tells the prefix.
    return request.session if request.output_blocks else request.blocks[0]
