"""Ids of 16-token blocks for the ids of longer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable


class BlockParts:
    """Cuts blocks of `block_tokens` tokens into those of an engine.

    Equal ids give the very same numbers: a trace names a block hundreds of times, and each number that is an
    object of its own would cost four times its place in a list.
    """

    def __init__(self, block_tokens: int) -> None:
        self._number = block_tokens // BLOCK_TOKENS
        self._known: dict[int, tuple[int, ...]] = {}

    def of(self, ids: Iterable[int]) -> list[int]:
        """The ids of all parts, in order."""
        parts: list[int] = []
        for block in ids:
            known = self._known.get(block)
            if known is None:
                known = tuple(range(block * self._number, (block + 1) * self._number))
                self._known[block] = known
            parts += known
        return parts
