"""What is compared: ways to route that the router has, with the settings that decide what they do to
traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.routing.strategies import STRATEGY_NAMES

CANDIDATE_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
"""Prefix lengths in tokens that may be recommended."""

CANDIDATE_THRESHOLDS = (8, 16, 32, 64, 128, 256)
"""Concurrency thresholds that may be recommended."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to route. label: its name in tables. prefix_tokens: None for a strategy that looks at no
    prefix, and where the depth is automatic."""

    label: str
    strategy: str
    prefix_tokens: int | None = None
    depth_auto: bool = False

    def plan(self, fleet: FleetPlan, concurrency_threshold: int | None = None) -> FleetPlan:
        """`fleet` under this contender; its own threshold unless another one is given."""
        return FleetPlan(
            strategy=self.strategy,
            replicas=fleet.replicas,
            profile=fleet.profile,
            concurrency_threshold=concurrency_threshold or fleet.concurrency_threshold,
            prefix_tokens=self.prefix_tokens or fleet.prefix_tokens,
            depth_auto=self.depth_auto,
            seed=fleet.seed,
        )


BASELINE = Contender("random", "random")
LOAD_ALONE = Contender("least_outstanding", "least_outstanding_requests")
AUTO = Contender("prefix_aware auto", "prefix_aware", depth_auto=True)


def contenders(longest_prompt: int) -> list[Contender]:
    """All that make a difference to prompts of at most `longest_prompt` tokens, the baseline first.

    A key that is longer than every prompt is the same as one that is just as long: one such length is enough.
    """
    lengths = [
        tokens
        for shorter, tokens in zip((0, *CANDIDATE_LENGTHS), CANDIDATE_LENGTHS, strict=False)
        if shorter < longest_prompt
    ]
    found = [
        BASELINE,
        LOAD_ALONE,
        *(Contender(f"prefix_aware {tokens}", "prefix_aware", tokens) for tokens in lengths),
        AUTO,
        Contender("adaptive", "adaptive"),
    ]
    return [contender for contender in found if contender.strategy in STRATEGY_NAMES]
