"""Prompts without words: how many tokens a text has, and the ids of the blocks that hold them.

A `TextSource` writes texts that nobody has written before. A text is continued with `after`; two texts that
continue the same one have its whole blocks in common and nothing else, as in an engine: the block in which
the common beginning ends already holds something of each one's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest


@dataclass(frozen=True, slots=True)
class Text:
    """`tokens` tokens in `blocks`, of which the last may be partial."""

    tokens: int
    blocks: tuple[int, ...]


EMPTY = Text(0, ())


class TextSource:
    """New texts, and names for new conversations. One source for all requests of a workload."""

    def __init__(self) -> None:
        self._next_block = 0
        self._sessions = count(1)

    def after(self, start: Text, tokens: int) -> Text:
        """`start` and `tokens` new tokens behind it."""
        if tokens < 1:
            return start
        whole = start.tokens // BLOCK_TOKENS
        total = start.tokens + tokens
        first = self._next_block
        self._next_block = first + -(-total // BLOCK_TOKENS) - whole
        return Text(total, start.blocks[:whole] + tuple(range(first, self._next_block)))

    def new(self, tokens: int) -> Text:
        """A text that begins like no other."""
        return self.after(EMPTY, tokens)

    def new_session(self) -> str:
        """A name for a conversation that has just begun."""
        return f"session-{next(self._sessions)}"


def single_turn(seconds: float, prompt: Text, output_tokens: int, session: str) -> SimulatedRequest:
    """A request that is a whole conversation: its first user turn is the end of its prompt."""
    return SimulatedRequest(
        seconds, prompt.blocks, prompt.tokens, output_tokens, session, user_turn_tokens=prompt.tokens
    )
