"""The workload of the published prefix-routing benchmark: long shared prefixes, used five times each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.workloads.base import require_at_least
from prefix_router.fleetsim.workloads.draw import poisson
from prefix_router.fleetsim.workloads.reuse import uses_in_order
from prefix_router.fleetsim.workloads.text import Text, single_turn

if TYPE_CHECKING:
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.text import TextSource


@dataclass(frozen=True, slots=True)
class SagemakerWorkload:
    """Prefixes of which each is the beginning of a few requests, and questions behind them.

    With five uses, sending requests anywhere finds a prefix on one of seven replicas one time in four, always
    to the same one four times in five: the reported hit rates. Question, answer and how close together the
    uses are were not published; the defaults are short ones and about a hundred prefixes in use at a time.

    prefix_tokens, uses: the length of a prefix and the requests that begin with it. tail_tokens: the question
    behind it, never seen before. output_tokens: the answer. active: prefixes in use at about the same time.
    """

    name: ClassVar[str] = "sagemaker"
    summary: ClassVar[str] = "8,000-token prefixes, five requests to each"

    prefix_tokens: int = 8000
    uses: int = 5
    tail_tokens: int = 100
    output_tokens: int = 32
    active: int = 100

    def __post_init__(self) -> None:
        require_at_least(
            {
                "prefix_tokens": self.prefix_tokens,
                "uses": self.uses,
                "tail_tokens": self.tail_tokens,
                "output_tokens": self.output_tokens,
                "active": self.active,
            }
        )

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """Requests that arrive independently, each from somebody else."""
        prefixes: dict[int, Text] = {}
        made = []
        for number, seconds in zip(
            uses_in_order(count, self.uses, self.active, random), poisson(random), strict=False
        ):
            if number not in prefixes:
                prefixes[number] = source.new(self.prefix_tokens)
            prompt = source.after(prefixes[number], self.tail_tokens)
            made.append(single_turn(seconds, prompt, self.output_tokens, source.new_session()))
        return made
