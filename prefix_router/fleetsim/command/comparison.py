"""What one call of `prefix-router simulate` compares."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.fleetsim.command.sources import AZURE_PREFIX
from prefix_router.fleetsim.plan import FleetPlan

if TYPE_CHECKING:
    from prefix_router.fleetsim.command.contender import Contender
    from prefix_router.fleetsim.command.sources import Source
    from prefix_router.fleetsim.plan import FleetEvent


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every source under every contender at every load.

    loads: shares of the fleet's capacity for the workload. arrivals: an Azure trace whose arrivals replace
    the sources' own. most_prompt_tokens: longer prompts are left out. jobs: processes that simulate.
    json_file, report_file: what to write besides the table.
    """

    sources: tuple[Source, ...]
    contenders: tuple[Contender, ...]
    loads: tuple[float, ...]
    replicas: int
    profile: str
    routers: int
    requests: int
    seed: int
    events: tuple[FleetEvent, ...]
    prefix_tokens: int
    concurrency_threshold: int
    arrivals: str | None
    most_prompt_tokens: int | None
    jobs: int
    json_file: str | None
    report_file: str | None

    def plan(self, contender: Contender) -> FleetPlan:
        """The fleet under one contender."""
        return FleetPlan(
            strategy=contender.strategy,
            replicas=self.replicas,
            profile=self.profile,
            routers=self.routers,
            events=self.events,
            concurrency_threshold=self.concurrency_threshold,
            prefix_tokens=contender.prefix_tokens or self.prefix_tokens,
            depth_auto=contender.depth_auto,
            seed=self.seed,
        )

    def command(self) -> str:
        """The command that gives the same results again; flags that have no say in them are left out."""
        words = ["prefix-router", "simulate"]
        for source in self.sources:
            words += [source.flag, source.text]
        words += ["--strategies", ",".join(contender.label for contender in self.contenders)]
        words += ["--load", ",".join(f"{load:g}" for load in self.loads)]
        words += ["--replicas", str(self.replicas), "--profile", self.profile]
        words += ["--routers", str(self.routers), "--requests", str(self.requests), "--seed", str(self.seed)]
        if self.events:
            events = [f"{event.change.value}@{event.seconds:g}:{event.replica}" for event in self.events]
            words += ["--events", ",".join(events)]
        words += ["--prefix-tokens", str(self.prefix_tokens)]
        words += ["--concurrency-threshold", str(self.concurrency_threshold)]
        if self.arrivals is not None:
            words += ["--arrivals", AZURE_PREFIX + self.arrivals]
        if self.most_prompt_tokens is not None:
            words += ["--most-prompt-tokens", str(self.most_prompt_tokens)]
        return shlex.join(words)
