"""A workload, ready to be run at any load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.engine.cost import PROFILES
from prefix_router.fleetsim.capacity import at_rate, ideal_work
from prefix_router.fleetsim.command.sources import collect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.command.comparison import Comparison
    from prefix_router.fleetsim.command.sources import Source
    from prefix_router.fleetsim.request import SimulatedRequest


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a workload before it runs.

    label: its name in tables. mean_prompt_tokens, mean_output_tokens: of its requests. ideal_hit_rate: share
    of the prompt tokens that ideal caches have. capacity: requests a second that the fleet could take then.
    natural_rate: requests a second as the workload makes them, before time is stretched; 0.0 if all come at
    once.
    """

    label: str
    requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    ideal_hit_rate: float
    capacity: float
    natural_rate: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """The requests of a workload, and what is known of it."""

    facts: Facts
    requests: Sequence[SimulatedRequest]

    def at_load(self, load: float) -> list[SimulatedRequest]:
        """The requests, arriving at `load` times the capacity."""
        return at_rate(self.requests, load * self.facts.capacity)


def prepare(source: Source, comparison: Comparison) -> Scenario:
    """The scenario of a source. Raises TraceError."""
    requests = collect(
        source, comparison.requests, comparison.seed, comparison.arrivals, comparison.most_prompt_tokens
    )
    work = ideal_work(requests)
    span = requests[-1].arrival_seconds - requests[0].arrival_seconds
    facts = Facts(
        label=source.label,
        requests=len(requests),
        mean_prompt_tokens=work.prompt_tokens / len(requests),
        mean_output_tokens=work.decoded_tokens / len(requests) + 1,
        ideal_hit_rate=work.hit_rate,
        capacity=work.capacity(PROFILES[comparison.profile], comparison.replicas),
        natural_rate=(len(requests) - 1) / span if span else 0.0,
    )
    return Scenario(facts, requests)
