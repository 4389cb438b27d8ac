"""Which backend holds which blocks, exactly: all engines together. Pure.

One dictionary from the name of a block (`names`) to its holders, who are bits of a whole number. So the
question "who holds how much of this prompt" walks down the names once, with the set of those who have had
every block so far, and ends at the first block that nobody has: O(blocks that somebody holds + engines).

Why not a bisection: an engine may lose a block in the middle of a chain that it holds the rest of, and only
what comes before the hole can be used. A step costs less than the hash that made the name.

An engine that is cleared gives up its bit and gets another one; what is still written under the old bit is
not looked at and is swept up a little with each event and question, so that forgetting a million blocks
holds nobody up.

Never grows without bound: `most_blocks` for each engine, then it is given up. A block takes about 200 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prefix_router.kv_events.engine import EngineBlocks
from prefix_router.kv_events.events import EngineHash, Event
from prefix_router.kv_events.names import prompt_blocks
from prefix_router.routing.fleet import BackendName

MOST_BLOCKS = 500_000
"""Blocks of one engine: 8 million tokens in blocks of 16."""

MOST_ADAPTERS = 1024
_SWEPT_AT_LEAST = 64


class KvIndex:
    """The blocks of all engines of a fleet. Fits `routing.holdings.Holdings`."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._engines: dict[tuple[BackendName, int], EngineBlocks] = {}
        self._directory = _Directory()

    def join(self, backend: BackendName, rank: int = 0) -> EngineBlocks:
        """Return the blocks of an engine that was not here before: none, and out of sync."""
        engine = EngineBlocks(self._directory, self._most_blocks)
        self._engines[backend, rank] = engine
        return engine

    def leave(self, backend: BackendName, rank: int = 0) -> None:
        """Forget an engine."""
        self._engines.pop((backend, rank)).leave()

    def limit(self, most_blocks: int) -> None:
        """Follow no engine that holds more than this, from its next block on."""
        self._most_blocks = most_blocks
        for engine in self._engines.values():
            engine.most_blocks = most_blocks

    def apply(self, engine: EngineBlocks, events: Iterable[Event]) -> None:
        """Follow the events of an engine, in order. Never raises."""
        before = len(engine)
        engine.apply(events)
        self._directory.sweep(2 * max(len(engine) - before, _SWEPT_AT_LEAST))

    def is_anybody_in_sync(self) -> bool:
        """Whether anything is known of any backend."""
        return any(engine.in_sync for engine in self._engines.values())

    def held_tokens(self, blocks: Iterable[int]) -> Mapping[BackendName, int]:
        """Return how many tokens of the blocks each backend holds, from the first on; 0 is an answer.

        blocks: names from `prompt_blocks`; looked at only as far as somebody holds them. A backend is left
        out when nothing is known of it: none of its engines is in sync. Of several engines the one that has
        most counts.
        """
        known = {
            engine.bit: (backend, engine) for (backend, _), engine in self._engines.items() if engine.in_sync
        }
        depths = self._directory.depths(blocks, sum(known))
        held: dict[BackendName, int] = {}
        for bit, (backend, engine) in known.items():
            tokens = depths.get(bit, 0) * (engine.block_size or 0)
            held[backend] = max(tokens, held.get(backend, 0))
        return held

    def held_of_prompt(
        self, tokens: bytes, model: str | None = None, salt: str | None = None
    ) -> Mapping[BackendName, int]:
        """Return how many tokens of a prompt each backend holds; as `held_tokens` otherwise.

        tokens: the whole prompt, packed. model: what the request asks for, which may be an adapter.
        """
        self._directory.sweep(_SWEPT_AT_LEAST)
        adapter = model if self._directory.is_adapter(model) else None
        sizes = {engine.block_size for engine in self._engines.values() if engine.in_sync}
        held = dict(self.held_tokens(()))
        for size in sizes - {None}:
            assert size is not None
            for backend, count in self.held_tokens(prompt_blocks(tokens, size, adapter, salt)).items():
                held[backend] = max(count, held[backend])
        return held

    def __len__(self) -> int:
        """How many different blocks somebody holds, or held and is still to be swept up."""
        return len(self._directory)


class _Directory:
    """Who holds a name: bits of a whole number. See `engine.Holders`."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._adapters: dict[str, None] = {}
        self._free_bits: list[int] = []
        self._bits = 0
        self._retired: list[tuple[int, dict[EngineHash, int]]] = []

    def __len__(self) -> int:
        return len(self._holders)

    def hold(self, name: int, bit: int) -> bool:
        mask = self._holders.get(name, 0)
        self._holders[name] = mask | bit
        return not mask & bit

    def drop(self, name: int, bit: int) -> None:
        mask = self._holders.get(name, 0) & ~bit
        if mask:
            self._holders[name] = mask
        else:
            self._holders.pop(name, None)

    def saw_adapter(self, name: str) -> None:
        if name not in self._adapters:
            if len(self._adapters) >= MOST_ADAPTERS:
                del self._adapters[next(iter(self._adapters))]
            self._adapters[name] = None

    def is_adapter(self, name: str | None) -> bool:
        return name in self._adapters

    def new_bit(self) -> int:
        if self._free_bits:
            return self._free_bits.pop()
        self._bits += 1
        return 1 << (self._bits - 1)

    def retire(self, bit: int, names: dict[EngineHash, int]) -> None:
        self._retired.append((bit, names))

    def sweep(self, most: int) -> None:
        """Take up to `most` names from under retired bits; a bit that is clean can be had again."""
        while self._retired and most > 0:
            bit, names = self._retired[-1]
            while names and most > 0:
                self.drop(names.popitem()[1], bit)
                most -= 1
            if not names:
                self._free_bits.append(bit)
                self._retired.pop()

    def depths(self, blocks: Iterable[int], holders: int) -> dict[int, int]:
        """Return, for each of `holders` (bits), how many of the blocks it has up to its first gap."""
        depths: dict[int, int] = {}
        depth = 0
        for name in blocks:
            left = self._holders.get(name, 0) & holders
            if left != holders:
                _note(depths, holders & ~left, depth)
                holders = left
                if not holders:
                    break
            depth += 1
        _note(depths, holders, depth)
        return depths


def _note(depths: dict[int, int], bits: int, depth: int) -> None:
    while bits:
        bit = bits & -bits
        depths[bit] = depth
        bits ^= bit
