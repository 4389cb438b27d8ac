"""One request of a simulated workload: when it comes, what its blocks hold, how much it generates."""

from __future__ import annotations

from typing import NamedTuple

BLOCK_TOKENS = 16
"""Tokens in a block, as in vLLM."""


class SimulatedRequest(NamedTuple):
    """A request.

    arrival_seconds: when the client sends it, from the start of the workload; at least 0.
    blocks: ids of the blocks of its prompt in order, 0 ≤ id < 2⁶⁴. The last one may be partial: there are
        `prompt_tokens / 16` of them, rounded up. Equal beginnings of ids mean equal beginnings of content;
        the same id after another beginning is another block, so an id need not be chained to those before.
    prompt_tokens, output_tokens: at least 1 each.
    session: the conversation that it is a turn of, or None.
    user_turn_tokens: where the first user turn of the prompt ends, in tokens, or None when that is unknown.
    model: the model or adapter it asks for, or None. Requests of different models share no blocks.
    output_blocks: ids of the blocks that hold what is generated, as they will be in the prompt of the next
        turn: the first one continues the block in which the prompt ends (it is block number
        `prompt_tokens // 16`, so it replaces the id of a partial last prompt block). What is not listed
        is not reused; blocks beyond the output are ignored.
    """

    arrival_seconds: float
    blocks: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    session: str | None = None
    user_turn_tokens: int | None = None
    model: str | None = None
    output_blocks: tuple[int, ...] = ()


def check(request: SimulatedRequest) -> None:
    """Raise ValueError when the numbers of a request contradict each other."""
    if request.arrival_seconds < 0:
        raise ValueError(f"a request cannot arrive before the start, at {request.arrival_seconds} s")
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise ValueError(
            f"a request needs at least one prompt and one output token, "
            f"got {request.prompt_tokens} and {request.output_tokens}"
        )
    expected = -(-request.prompt_tokens // BLOCK_TOKENS)
    if len(request.blocks) != expected:
        raise ValueError(
            f"{request.prompt_tokens} prompt tokens are {expected} blocks, got {len(request.blocks)}"
        )
