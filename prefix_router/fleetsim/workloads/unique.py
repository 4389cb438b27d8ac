"""Prompts that share nothing: where a prefix router can only lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.workloads.base import require_at_least, require_spreads
from prefix_router.fleetsim.workloads.draw import LogNormal, poisson
from prefix_router.fleetsim.workloads.text import single_turn

if TYPE_CHECKING:
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.text import TextSource


@dataclass(frozen=True, slots=True)
class UniqueWorkload:
    """Requests of various lengths without a common beginning.

    prompt_tokens, output_tokens: medians. prompt_sigma, output_sigma: spread of the logarithms.
    most_tokens: the longest prompt.
    """

    name: ClassVar[str] = "unique"
    summary: ClassVar[str] = "prompts of about 1,000 tokens that share nothing"

    prompt_tokens: int = 1000
    prompt_sigma: float = 0.8
    output_tokens: int = 100
    output_sigma: float = 0.6
    most_tokens: int = 32_000

    def __post_init__(self) -> None:
        require_at_least(
            {
                "prompt_tokens": self.prompt_tokens,
                "output_tokens": self.output_tokens,
                "most_tokens": self.most_tokens,
            }
        )
        require_spreads({"prompt_sigma": self.prompt_sigma, "output_sigma": self.output_sigma})

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """Requests that arrive independently, each from somebody else."""
        prompt = LogNormal(self.prompt_tokens, self.prompt_sigma)
        output = LogNormal(self.output_tokens, self.output_sigma)
        made = []
        for _, seconds in zip(range(count), poisson(random), strict=False):
            text = source.new(prompt.tokens(random, self.most_tokens))
            made.append(
                single_turn(seconds, text, output.tokens(random, self.most_tokens), source.new_session())
            )
        return made
