"""The KV cache of one engine: blocks that are in use, blocks that are free, and names for what they hold.

A block that is freed keeps its name and its content until somebody needs the space, so the cache costs
nothing and eviction is lazy. The rules are vLLM's:

- A block has a reference count. It is free at zero; only free blocks can be taken, so a running request
  never loses one.
- A free block without a name can never be hit and is taken first. Named ones are taken least recently
  freed first, and a request frees its tail before its head: the head is what others may share.
- Equal blocks computed side by side are all kept and all named; a lookup finds the oldest. They are not
  merged, because a block that is in use cannot move.

Every operation is O(blocks given); there is no scan over the cache. Blocks are integers and the tables flat
lists, because a trace touches tens of millions of blocks. `OrderedDict` is the LRU list: it alone removes
from the middle and pops its head in constant time.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlockCache:
    """`blocks` KV blocks. Callers hold block numbers and give each back exactly once per reference."""

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError(f"a KV cache needs at least one block, got {blocks}")
        self.total_blocks = blocks
        self._references = [0] * blocks
        self._name_of: list[int | None] = [None] * blocks
        self._unnamed = list(range(blocks - 1, -1, -1))
        self._named: OrderedDict[int, None] = OrderedDict()
        self._block_of: dict[int, int] = {}
        self._twins: dict[int, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        """How many blocks nobody refers to, with or without reusable content."""
        return len(self._unnamed) + len(self._named)

    @property
    def named_blocks(self) -> int:
        """How many blocks hold content that a lookup could find, twins included."""
        return len(self._block_of) + sum(map(len, self._twins.values()))

    def lookup(self, hashes: Sequence[int], limit: int) -> list[int]:
        """The blocks of the longest run of `hashes`, from the first on, that is cached; at most `limit`."""
        find = self._block_of.get
        hits = []
        for name in islice(hashes, limit):
            block = find(name)
            if block is None:
                break
            hits.append(block)
        return hits

    def count_free(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free now, and so would stop being free when acquired."""
        references = self._references
        return sum(not references[block] for block in blocks)

    def acquire(self, blocks: Sequence[int]) -> None:
        """Refer once more to `blocks`, as returned by `lookup` with nothing allocated in between."""
        references = self._references
        for block in blocks:
            if not references[block]:
                del self._named[block]
            references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, evicting what they hold. Raises ValueError when there are too few."""
        if count > self.free_blocks:
            raise ValueError(f"{count} blocks wanted, {self.free_blocks} free")
        unnamed = self._unnamed
        kept = max(len(unnamed) - count, 0)
        taken = unnamed[kept:]
        del unnamed[kept:]
        for _ in range(count - len(taken)):
            block, _none = self._named.popitem(last=False)
            self._forget(block)
            taken.append(block)
        references = self._references
        for block in taken:
            references[block] = 1
        return taken

    def publish(self, blocks: Sequence[int], hashes: Sequence[int]) -> None:
        """Name `blocks`, which are in use, after the content they now hold."""
        for block, name in zip(blocks, hashes, strict=True):
            self._name_of[block] = name
            if self._block_of.setdefault(name, block) != block:
                self._twins.setdefault(name, []).append(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference to each of a request's `blocks`, given head first, freed tail first."""
        references = self._references
        for block in reversed(blocks):
            references[block] -= 1
            if not references[block]:
                if self._name_of[block] is None:
                    self._unnamed.append(block)
                else:
                    self._named[block] = None

    def reset(self) -> bool:
        """Forget all content, unless a block is in use: then change nothing and return False."""
        if self.free_blocks < self.total_blocks:
            return False
        for block in self._named:
            self._name_of[block] = None
        self._unnamed.extend(self._named)
        self._named.clear()
        self._block_of.clear()
        self._twins.clear()
        return True

    def _forget(self, block: int) -> None:
        name = self._name_of[block]
        assert name is not None
        self._name_of[block] = None
        twins = self._twins.get(name)
        if twins is None:
            del self._block_of[name]
            return
        if self._block_of[name] == block:
            self._block_of[name] = twins.pop(0)
        else:
            twins.remove(block)
        if not twins:
            del self._twins[name]
