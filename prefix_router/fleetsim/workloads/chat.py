"""People who talk to a chat application: turns that grow, and pauses to read and think."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from prefix_router.fleetsim.workloads.base import require_at_least, require_spreads
from prefix_router.fleetsim.workloads.conversations import Turn, interleave
from prefix_router.fleetsim.workloads.draw import LogNormal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from prefix_router.fleetsim.workloads.text import Text, TextSource


@dataclass(frozen=True, slots=True)
class ChatWorkload:
    """Conversations behind one system prompt; each turn repeats everything before it.

    system_tokens: the system prompt of all. turns: mean number in a conversation, geometrically distributed.
    user_tokens, output_tokens: medians of a message and of an answer; user_sigma, output_sigma: the spread of
    their logarithms. pause_seconds, pause_sigma: the same of the time from one turn to the next.
    most_tokens: a conversation ends before a prompt that would be longer.
    """

    name: ClassVar[str] = "chat"
    summary: ClassVar[str] = "conversations of about six turns behind one system prompt, with pauses"

    system_tokens: int = 1500
    turns: float = 6.0
    user_tokens: int = 60
    user_sigma: float = 0.9
    output_tokens: int = 200
    output_sigma: float = 0.7
    pause_seconds: float = 15.0
    pause_sigma: float = 0.8
    most_tokens: int = 32_000

    def __post_init__(self) -> None:
        require_at_least(
            {
                "system_tokens": self.system_tokens,
                "turns": self.turns,
                "user_tokens": self.user_tokens,
                "output_tokens": self.output_tokens,
                "pause_seconds": self.pause_seconds,
                "most_tokens": self.most_tokens,
            }
        )
        require_spreads(
            {
                "user_sigma": self.user_sigma,
                "output_sigma": self.output_sigma,
                "pause_sigma": self.pause_sigma,
            }
        )

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """As many people as give each time for about one conversation."""
        system = source.new(self.system_tokens)
        people = max(round(count / self.turns), 1)
        pause_seconds = LogNormal(self.pause_seconds, self.pause_sigma).mean
        return interleave(
            lambda: self._converse(system, random, source), people, count, random, pause_seconds
        )

    def _converse(self, system: Text, random: Random, source: TextSource) -> Iterator[Turn]:
        user = LogNormal(self.user_tokens, self.user_sigma)
        output = LogNormal(self.output_tokens, self.output_sigma)
        pause = LogNormal(self.pause_seconds, self.pause_sigma)
        session = source.new_session()
        room = self.most_tokens - self.system_tokens
        prompt = source.after(system, user.tokens(random, max(room, 1)))
        first_turn_tokens = prompt.tokens
        seconds = 0.0
        while True:
            output_tokens = output.tokens(random, self.most_tokens)
            answered = source.after(prompt, output_tokens)
            request = SimulatedRequest(
                arrival_seconds=seconds,
                blocks=prompt.blocks,
                prompt_tokens=prompt.tokens,
                output_tokens=output_tokens,
                session=session,
                user_turn_tokens=first_turn_tokens,
                output_blocks=answered.blocks[prompt.tokens // BLOCK_TOKENS :],
            )
            wait = pause.draw(random)
            yield Turn(request, wait)
            seconds += wait
            prompt = source.after(answered, user.tokens(random))
            if random.random() < 1 / self.turns or prompt.tokens > self.most_tokens:
                return
