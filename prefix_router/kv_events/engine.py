"""The blocks that one engine holds, followed event by event. Pure.

An engine is one data-parallel rank of one backend. Its events speak of blocks by the engine's own hashes;
here each hash is translated into our name (`names`) once, when the block is stored, and the shared
directory of holders (`Holders`) is kept up to date with every event.

What has to be got right:

- A block may be in the cache several times: an engine does not look whether another copy exists when it
  computes one (the last block of a prompt that is asked again, say). Each copy is stored and removed by an
  event of its own, so copies are counted. But a request with `kv_cache_report_mode: full` has the engine
  also report blocks that it merely used again, which look the same. Those always begin at the beginning of
  a prompt, copies of more than one block nearly never do (a prompt with `prompt_logprobs`, for which the
  cache is not read): so several known blocks from the beginning are not counted again. Where that is wrong,
  blocks are taken to be gone while a copy is left.
- Several hashes may have one name (an adapter that was loaded again from another path). The name is held
  until the last of them goes.
- A block may name a parent of which the last counted copy is gone. The names of the last `REMEMBERED` removed
  blocks are kept for that.
- Only the cache that attention reads counts: medium GPU (which a CPU build says too), or none in old
  versions. Blocks offloaded to memory or disk are counted, not held. Of the caches of a hybrid model the
  first one that serves full attention counts.

Bounded: an engine that holds more than `most_blocks` is given up (`overflown`) until its cache is cleared.
O(1) for each block of an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prefix_router.kv_events.events import TOKEN_BYTES, AllBlocksCleared, BlockRemoved, BlockStored, Event
from prefix_router.kv_events.events import EngineHash as Hash
from prefix_router.kv_events.names import block_name, extra, root_name

REMEMBERED = 4096
"""Removed blocks whose names are kept for children that are stored later."""

_MAIN_MEDIA = frozenset({None, "GPU"})
_MAIN_KINDS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})


class Holders(Protocol):
    """The directory that all engines share: who holds a name. Each engine has a bit of its own."""

    def hold(self, name: int, bit: int) -> bool:
        """Note a holder; return whether it was new."""

    def drop(self, name: int, bit: int) -> None:
        """Note that somebody does not hold a name any more."""

    def saw_adapter(self, name: str) -> None:
        """Note that a model of this name is an adapter."""

    def new_bit(self) -> int:
        """Return a bit that nobody has."""

    def retire(self, bit: int, names: dict[Hash, int]) -> None:
        """Take back a bit, and what was held under it."""


class EngineBlocks:
    """What one engine holds.

    in_sync: whether this is the whole truth; set by who follows the events (`follower`). block_size: in
    tokens, None until the first block. offloaded: stored blocks on other media. skipped: stored blocks that
    could not be named: of another cache, of another size, or with an unknown parent.
    """

    def __init__(self, holders: Holders, most_blocks: int) -> None:
        self.in_sync = False
        self.overflown = False
        self.block_size: int | None = None
        self.offloaded = 0
        self.skipped = 0
        self.bit = holders.new_bit()
        self._holders = holders
        self.most_blocks = most_blocks
        self._has_left = False
        self._names: dict[Hash, int] = {}
        self._further_copies: dict[Hash, int] = {}
        self._further_hashes: dict[int, int] = {}
        self._removed: dict[Hash, int] = {}
        self._group: int | None = None

    def __len__(self) -> int:
        """How many blocks it holds, copies counted once."""
        return len(self._names)

    def apply(self, events: Iterable[Event]) -> None:
        """Follow the events, in order. Never raises."""
        for event in () if self._has_left else events:
            if isinstance(event, BlockStored):
                if not self.overflown:
                    self._store(event)
            elif isinstance(event, BlockRemoved):
                if event.medium in _MAIN_MEDIA and event.group == self._group:
                    for engine_hash in event.hashes:
                        self._remove(engine_hash)
            else:
                assert isinstance(event, AllBlocksCleared)
                self.clear()

    def clear(self) -> None:
        """Forget everything, block size and all: the next events may be another engine's. O(1)."""
        if self._has_left:
            return
        self._holders.retire(self.bit, self._names)
        self.bit = self._holders.new_bit()
        self._names = {}
        self._further_copies = {}
        self._further_hashes = {}
        self._removed = {}
        self._group = self.block_size = None
        self.overflown = self.in_sync = False

    def leave(self) -> None:
        """Hold nothing any more, for good, whatever still comes. Safe to call twice."""
        if not self._has_left:
            self.clear()
            self._holders.retire(self.bit, {})
            self._has_left = True

    def _store(self, event: BlockStored) -> None:
        count = len(event.hashes)
        if event.medium not in _MAIN_MEDIA:
            self.offloaded += count
            return
        above = self._place(event)
        if above is None:
            self.skipped += count
            return
        is_copy = event.parent is not None or count == 1
        step = event.block_size * TOKEN_BYTES
        keys = event.extra_keys
        for index, engine_hash in enumerate(event.hashes):
            data = event.tokens[index * step : (index + 1) * step]
            if keys is not None and keys[index]:
                data += extra(keys[index], event.lora_name, is_first=event.parent is None and index == 0)
            above = block_name(data, above)
            if engine_hash not in self._names:
                self._hold(engine_hash, above)
            elif is_copy:
                self._further_copies[engine_hash] = self._further_copies.get(engine_hash, 0) + 1
        if event.lora_name is not None:
            self._holders.saw_adapter(event.lora_name)
        if len(self._names) > self.most_blocks:
            self.clear()
            self.overflown = True

    def _place(self, event: BlockStored) -> int | None:
        """Return the name above the first block, None when these blocks have no place here."""
        if event.kind not in _MAIN_KINDS or event.block_size == 0:
            return None
        if len(event.tokens) != len(event.hashes) * event.block_size * TOKEN_BYTES:
            return None
        if self.block_size is None:
            self.block_size, self._group = event.block_size, event.group
        if (event.block_size, event.group) != (self.block_size, self._group):
            return None
        if event.parent is None:
            return root_name(event.lora_name, event.block_size)
        name = self._names.get(event.parent)
        return self._removed.get(event.parent) if name is None else name

    def _hold(self, engine_hash: Hash, name: int) -> None:
        self._names[engine_hash] = name
        self._removed.pop(engine_hash, None)
        if not self._holders.hold(name, self.bit):
            self._further_hashes[name] = self._further_hashes.get(name, 0) + 1

    def _remove(self, engine_hash: Hash) -> None:
        if engine_hash in self._further_copies:
            _decrement(self._further_copies, engine_hash)
            return
        name = self._names.pop(engine_hash, None)
        if name is None:
            return
        if len(self._removed) >= REMEMBERED:
            del self._removed[next(iter(self._removed))]
        self._removed[engine_hash] = name
        if name in self._further_hashes:
            _decrement(self._further_hashes, name)
        else:
            self._holders.drop(name, self.bit)


def _decrement(counts: dict[Hash, int] | dict[int, int], key: Hash) -> None:
    counts[key] -= 1  # type: ignore[index]
    if not counts[key]:  # type: ignore[index]
        del counts[key]  # type: ignore[arg-type]
