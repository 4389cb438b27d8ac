"""Which backend probably holds how much of a prompt: an index made from what was sent where.

An engine keeps the blocks of a prompt that it has computed until it needs their place. So where a prompt
went, its levels (`routing.chain`) are, unless as many tokens as the engine has room for went there since. The
index keeps for each level who got it and when, time being counted in tokens that were new to that holder (its
odometer). A level whose stamp is behind the holder's horizon, its odometer less its room, counts as evicted;
nothing has to be searched for and removed. Who has lost everything has its horizon moved up to now.

An engine drops what was used longest ago and counts every use, not only what is new; so the odometer runs a
little slow. What room a holder has is the caller's to know, and to learn.

Holders are slots, whole numbers that `join` gives and `leave` takes back. A slot's odometer goes on when it
gets another owner, so that nothing of the former one is taken for the new one's.

Bounded by two generations of levels: when the younger one has half of `most_levels`, the older one is dropped
whole and the younger one takes its place. What is used moves to the younger one. Nearly all levels have one
holder, whose slot and stamp are one whole number; several are a dictionary, which loses those behind their
horizon whenever it gets a new one.

Cost: recording is one or two lookups for each level; asking is a bisection to the deepest level that anybody
has, and a walk up from there until all who hold the first level are found.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_LEVELS = 1_000_000
"""Levels that are remembered. One takes about 110 bytes, once it is used."""

_SLOT_BITS = 16
_SLOT_MASK = (1 << _SLOT_BITS) - 1

_Entry: TypeAlias = Union[int, "dict[int, int]"]


class PrefixIndex:
    """Levels and their holders."""

    def __init__(self, most_levels: int = MOST_LEVELS) -> None:
        """most_levels: how many are remembered at most; at least 2."""
        self._generation = max(most_levels // 2, 1)
        self._young: dict[int, _Entry] = {}
        self._old: dict[int, _Entry] = {}
        self._odometer: list[int] = []
        self._horizon: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many levels it remembers; those that are in both generations count twice."""
        return len(self._young) + len(self._old)

    def join(self) -> int:
        """A slot for a holder that has nothing."""
        if self._free:
            return heappop(self._free)
        if len(self._odometer) > _SLOT_MASK:
            raise OverflowError(f"an index has {_SLOT_MASK + 1} slots")
        self._odometer.append(0)
        self._horizon.append(0)
        return len(self._odometer) - 1

    def leave(self, slot: int) -> None:
        """Take a slot back; its holder is gone."""
        self.forget(slot)
        heappush(self._free, slot)

    def forget(self, slot: int) -> None:
        """Note that a holder has lost everything."""
        self._odometer[slot] += 1
        self._horizon[slot] = self._odometer[slot]

    def advance(self, slot: int, tokens: int, room: int) -> None:
        """Note that `tokens` new tokens came to a holder that has room for `room` of them."""
        mark = self._odometer[slot] = self._odometer[slot] + tokens
        if mark - room > self._horizon[slot]:
            self._horizon[slot] = mark - room

    def record(self, names: Iterable[int], slot: int) -> None:
        """Note that a holder has these levels now."""
        young, old = self._young, self._old
        stamp = self._odometer[slot]
        single = stamp << _SLOT_BITS | slot
        for name in names:
            entry = young.setdefault(name, single)
            if entry is single:
                entry = old.get(name, single)
                if entry is single:
                    continue
                young[name] = entry
            if isinstance(entry, int):
                other = entry & _SLOT_MASK
                if other == slot or entry >> _SLOT_BITS < self._horizon[other]:
                    young[name] = single
                else:
                    young[name] = {other: entry >> _SLOT_BITS, slot: stamp}
            elif slot in entry:
                entry[slot] = stamp
            else:
                young[name] = fresh = self._fresh(entry)
                fresh[slot] = stamp
        if len(young) >= self._generation:
            self._old, self._young = young, {}

    def holders(self, name: int) -> list[int]:
        """Who has the level of this name."""
        return list(self._fresh(self._entry(name)))

    def held_levels(self, names: Sequence[int]) -> dict[int, int]:
        """How many of these levels, from the first on, each holder has; those that have none are left out."""
        young, old = self._young, self._old
        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            if names[middle] in young or names[middle] in old:
                low = middle + 1
            else:
                high = middle
        held: dict[int, int] = {}
        if not low:
            return held
        horizon = self._horizon
        first = self._entry(names[0])
        everybody = 1 if isinstance(first, int) else len(first)
        counted = False
        for level in range(low, 0, -1):
            name = names[level - 1]
            entry = young.get(name)
            if entry is None:
                entry = old.get(name, {})
            if isinstance(entry, int):
                slot = entry & _SLOT_MASK
                if slot not in held and entry >> _SLOT_BITS >= horizon[slot]:
                    held[slot] = level
            else:
                for slot, stamp in entry.items():
                    if slot not in held and stamp >= horizon[slot]:
                        held[slot] = level
            if len(held) < everybody and not counted:
                everybody = len(self._fresh(first))
                counted = True
            if len(held) >= everybody:
                break
        return held

    def _entry(self, name: int) -> _Entry:
        entry = self._young.get(name)
        if entry is None:
            entry = self._old.get(name)
        return {} if entry is None else entry

    def _fresh(self, entry: _Entry) -> dict[int, int]:
        """The holders of an entry that have not lost it, and their stamps."""
        horizon = self._horizon
        if isinstance(entry, int):
            slot, stamp = entry & _SLOT_MASK, entry >> _SLOT_BITS
            return {slot: stamp} if stamp >= horizon[slot] else {}
        return {slot: stamp for slot, stamp in entry.items() if stamp >= horizon[slot]}
