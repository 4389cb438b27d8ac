"""Names for the blocks of a request, and the prefix keys that routers make of them.

A workload gives ids; an engine needs names that stand for everything up to the end of a block, model
included. So names are chained: the hash of a pair of integers, which Python computes alike in every process.

A prefix key covers the blocks of the first N tokens, or those up to the end of the first user turn. A turn
that ends inside a block is the difficulty: the router hashes its text, but here a block's id says what the
whole block holds, which is something else in the next turn. The key then covers the blocks before, and the
conversation's own name stands for the rest. So two conversations that begin alike up to the last word of such
a turn have different keys here; a router would give them the same. The ends of a chain are named likewise.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

from prefix_router.fleetsim.request import BLOCK_TOKENS
from prefix_router.routing.chain import LEVEL_TOKENS, MOST_ENDS, PrefixChain, PromptEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.request import SimulatedRequest

_UNSIGNED = 2**64 - 1


def name_blocks(request: SimulatedRequest) -> list[int]:
    """The chained names of the full blocks of the prompt, and of the output behind it where that has ids."""
    ids = request.blocks[: request.prompt_tokens // BLOCK_TOKENS] + request.output_blocks
    return list(accumulate(ids, _chain, initial=_root(request.model)))[1:]


def prefix_key(request: SimulatedRequest, prefix_tokens: int, *, anchored: bool = True) -> int:
    """The 64-bit key over the first `prefix_tokens` tokens.

    anchored: whether it ends with the first user turn when that comes before.
    """
    end = min(prefix_tokens, request.prompt_tokens)
    anchor = request.user_turn_tokens
    rest = b""
    if anchored and anchor is not None and anchor <= end:
        end = anchor
        if request.session is not None and end % BLOCK_TOKENS:
            end -= end % BLOCK_TOKENS
            rest = request.session.encode()
    whole = -(-end // BLOCK_TOKENS)
    return xxh3_64_intdigest(array("Q", request.blocks[:whole]).tobytes() + rest, _root(request.model))


class Conversations:
    """Makes the chain of each request, knowing where earlier prompts of its session ended.

    Memory: a few places for each session. A router has none of it: it reads the places off the prompt.
    """

    def __init__(self) -> None:
        self._asked: dict[str, list[_Asked]] = {}

    def chain(self, request: SimulatedRequest, names: Sequence[int]) -> PrefixChain:
        """The chain of a request's prompt, of which `names` are the names of its blocks."""
        prompt = request.prompt_tokens
        levels = LEVEL_TOKENS[: bisect_right(LEVEL_TOKENS, prompt)]
        ends = (
            [PromptEnd(prompt, prefix_key(request, prompt))]
            if request.session is None
            else self._ends(request, request.session, names)
        )
        return PrefixChain([_name_at(tokens, names) & _UNSIGNED for tokens in levels], prompt, ends)

    def _ends(self, request: SimulatedRequest, session: str, names: Sequence[int]) -> list[PromptEnd]:
        prompt = request.prompt_tokens
        asked = [
            turn
            for turn in self._asked.get(session, ())
            if turn.tokens < prompt and turn.name == _name_at(turn.tokens, names)
        ]
        asked.append(_Asked(prompt, _name_at(prompt, names), request.output_tokens))
        if len(asked) > 2 * MOST_ENDS:
            del asked[MOST_ENDS]
        self._asked[session] = asked
        ends = []
        first = request.user_turn_tokens
        if first is not None and first < asked[0].tokens:
            ends.append(PromptEnd(first, prefix_key(request, first)))
        for tokens, name, answer in asked:
            own = session.encode() + (name & _UNSIGNED).to_bytes(8, "little")
            ends.append(PromptEnd(tokens, xxh3_64_intdigest(own, tokens), 0 if tokens == prompt else answer))
        return ends


class _Asked(NamedTuple):
    """An earlier prompt of a session. name: of its last full block."""

    tokens: int
    name: int
    answer_tokens: int


def _name_at(tokens: int, names: Sequence[int]) -> int:
    """The name of the last block that is full within `tokens`, 0 if none is."""
    whole = tokens // BLOCK_TOKENS
    return names[whole - 1] if whole else 0


def _root(model: str | None) -> int:
    return 0 if model is None else xxh3_64_intdigest(model.encode())


def _chain(parent: int, block_id: int) -> int:
    return hash((parent, block_id))
