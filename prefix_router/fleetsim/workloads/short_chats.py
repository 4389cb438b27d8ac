"""Short conversations: even the last turn is below the usual prefix length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.workloads.chat import ChatWorkload

if TYPE_CHECKING:
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.text import TextSource


@dataclass(frozen=True, slots=True)
class ShortChatsWorkload:
    """Conversations that end before `most_tokens`: a key over the first N tokens would cover every turn.

    system_tokens: the system prompt of all. turns: mean number in a conversation, which the limit cuts short.
    user_tokens, output_tokens: medians. pause_seconds: median time from one turn to the next.
    """

    name: ClassVar[str] = "short_chats"
    summary: ClassVar[str] = "conversations that end before 1,024 tokens"

    most_tokens: int = 1024
    system_tokens: int = 100
    turns: float = 6.0
    user_tokens: int = 50
    output_tokens: int = 100
    pause_seconds: float = 15.0

    def __post_init__(self) -> None:
        self._chat()

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """As those of `chat`, with shorter texts."""
        return self._chat().requests(count, random, source)

    def _chat(self) -> ChatWorkload:
        if self.system_tokens >= self.most_tokens:
            raise ValueError("system_tokens must be below most_tokens")
        return ChatWorkload(
            system_tokens=self.system_tokens,
            turns=self.turns,
            user_tokens=self.user_tokens,
            user_sigma=0.5,
            output_tokens=self.output_tokens,
            output_sigma=0.5,
            pause_seconds=self.pause_seconds,
            most_tokens=self.most_tokens,
        )
