"""Names for the blocks of a request, and the prefix keys that routers make of them.

A workload gives ids; an engine needs names that stand for everything up to the end of a block, model
included. So names are chained: the hash of a pair of integers, which Python computes alike in every process.

A prefix key covers the blocks of the first N tokens, or those up to the end of the first user turn. A turn
that ends inside a block is the difficulty: the router hashes its text, but here a block's id says what the
whole block holds, which is something else in the next turn. The key then covers the blocks before, and the
conversation's own name stands for the rest. So two conversations that begin alike up to the last word of such
a turn have different keys here; a router would give them the same.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from prefix_router.fleetsim.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from prefix_router.fleetsim.request import SimulatedRequest


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


def _root(model: str | None) -> int:
    return 0 if model is None else xxh3_64_intdigest(model.encode())


def _chain(parent: int, block_id: int) -> int:
    return hash((parent, block_id))
