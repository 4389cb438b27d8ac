"""One prefix with a large share of the traffic, among others that are used a few times each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.workloads.base import require_at_least, require_share
from prefix_router.fleetsim.workloads.draw import poisson
from prefix_router.fleetsim.workloads.reuse import uses_in_order
from prefix_router.fleetsim.workloads.text import Text, single_turn

if TYPE_CHECKING:
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.text import TextSource


@dataclass(frozen=True, slots=True)
class HotPrefixWorkload:
    """Where affinity can hurt: whoever keeps a prefix on one replica sends it `share` of everything.

    share: of the requests that begin with the hot prefix, 0 to 1; 0.05 to 1 is where it gets interesting.
    prefix_tokens: of the hot prefix and of the others. uses: of each other prefix. tail_tokens,
    output_tokens: of each request. active: other prefixes in use at about the same time.
    """

    name: ClassVar[str] = "hot_prefix"
    summary: ClassVar[str] = "one prefix has a share of all requests (share=0.5)"

    share: float = 0.5
    prefix_tokens: int = 4000
    uses: int = 5
    tail_tokens: int = 100
    output_tokens: int = 64
    active: int = 100

    def __post_init__(self) -> None:
        require_share("share", self.share)
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
        hot = source.new(self.prefix_tokens)
        others: dict[int, Text] = {}
        order = iter(uses_in_order(count, self.uses, self.active, random))
        made = []
        for _, seconds in zip(range(count), poisson(random), strict=False):
            prefix = hot
            if random.random() >= self.share:
                number = next(order)
                if number not in others:
                    others[number] = source.new(self.prefix_tokens)
                prefix = others[number]
            prompt = source.after(prefix, self.tail_tokens)
            made.append(single_turn(seconds, prompt, self.output_tokens, source.new_session()))
        return made
