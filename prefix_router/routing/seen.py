"""How much of a prompt came before: the longest beginning that this router has seen lately, wherever it went.

What can be shared at all is the first question about any traffic, and hit rates mean little without it:
cached tokens are a success or a failure only against what could have been cached. Only levels of chains are
kept, in two generations, of which the older one is dropped whole when the younger one is full.

Cost: a bisection, and one entry for each level that is new or not in the younger generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.chain import LEVEL_TOKENS

if TYPE_CHECKING:
    from prefix_router.routing.chain import PrefixChain

MOST_LEVELS = 200_000


class Seen:
    """Remembers `most_levels` levels, about 100 bytes each."""

    def __init__(self, most_levels: int = MOST_LEVELS) -> None:
        self._generation = max(most_levels // 2, 1)
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __len__(self) -> int:
        """How many levels are remembered; those that are in both generations count twice."""
        return len(self._young) + len(self._old)

    def shared_tokens(self, chain: PrefixChain) -> int:
        """How many tokens of the prompt came before, at the resolution of levels; remembers the prompt."""
        names, young, old = chain.names, self._young, self._old
        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            if names[middle] in young or names[middle] in old:
                low = middle + 1
            else:
                high = middle
        young.update(names)
        if len(young) >= self._generation:
            self._old, self._young = young, set()
        return LEVEL_TOKENS[low - 1] if low else 0
