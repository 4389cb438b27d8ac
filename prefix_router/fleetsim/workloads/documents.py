"""One application's system prompt, and documents behind it that are asked about several times."""

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
class DocumentsWorkload:
    """Every prompt begins with the same system prompt: a key that ends within it is the same for everybody.

    system_tokens: the system prompt. document_tokens, uses: the length of a document and the questions to it.
    question_tokens, output_tokens: of each request. active: documents in use at about the same time.
    """

    name: ClassVar[str] = "documents"
    summary: ClassVar[str] = "a 2,000-token system prompt for all, and documents asked about five times"

    system_tokens: int = 2000
    document_tokens: int = 6000
    uses: int = 5
    question_tokens: int = 50
    output_tokens: int = 64
    active: int = 100

    def __post_init__(self) -> None:
        require_at_least(
            {
                "system_tokens": self.system_tokens,
                "document_tokens": self.document_tokens,
                "uses": self.uses,
                "question_tokens": self.question_tokens,
                "output_tokens": self.output_tokens,
                "active": self.active,
            }
        )

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """Requests that arrive independently, each from somebody else."""
        system = source.new(self.system_tokens)
        documents: dict[int, Text] = {}
        made = []
        for number, seconds in zip(
            uses_in_order(count, self.uses, self.active, random), poisson(random), strict=False
        ):
            if number not in documents:
                documents[number] = source.after(system, self.document_tokens)
            prompt = source.after(documents[number], self.question_tokens)
            made.append(single_turn(seconds, prompt, self.output_tokens, source.new_session()))
        return made
