"""How much of the traffic is shared, and how: counted in one pass, in bounded memory, exact within a window.

A window is a run of requests with `window_blocks` blocks of 16 tokens in all; by default 33 million tokens,
some times what the caches of a fleet hold. Within it everything is counted, block by block. At its end its
requests are put into the table and forgotten, and what comes back only later counts as new. That is a bound
on memory (some 250 MB when nothing is shared at all) and nearly what a cache would do, which forgets too.

Of a request counts the longest beginning that it has in common with any other one of its window, and how
many requests have that beginning. Recurring tokens are those that an earlier request of the window has in
the same place: what caches without limits would have. Cost: 80 ns for each block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from prefix_router.fleetsim.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_BLOCKS = 1 << 21

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
"""Beginnings of which it is counted how many there are."""

ROWS = (
    (0, "nothing"),
    (1, "under 256"),
    (256, "256 to 1k"),
    (1024, "1k to 4k"),
    (4096, "4k to 16k"),
    (16_384, "over 16k"),
)
"""Tokens of the longest shared beginning: from where a bucket begins, and what it is called."""

COLUMNS = ((1, "1"), (2, "2"), (3, "3–5"), (6, "6–20"), (21, "over 20"))
"""How many requests have that beginning."""

_ROW_STARTS = [start for start, _ in ROWS]
_COLUMN_STARTS = [start for start, _ in COLUMNS]


@dataclass(slots=True)
class Cell:
    """Requests of one bucket. tokens: of their prompts."""

    requests: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Length:
    """Beginnings of one length. requests: that are as long. distinct: beginnings. recurring: requests whose
    beginning another one has, too. largest: requests with the most frequent one."""

    tokens: int
    requests: int = 0
    distinct: int = 0
    recurring: int = 0
    largest: int = 0


class _Kept(NamedTuple):
    names: array[int]
    tokens: int


@dataclass(slots=True)
class Sharing:
    """Takes one request after the other; `finish` before reading the counts.

    recurring_tokens: an earlier request has them. cells: by row and column. windows: how many there were.
    """

    window_blocks: int = WINDOW_BLOCKS
    requests: int = 0
    tokens: int = 0
    recurring_tokens: int = 0
    windows: int = 0
    cells: list[list[Cell]] = field(default_factory=lambda: [[Cell() for _ in COLUMNS] for _ in ROWS])
    lengths: list[Length] = field(default_factory=lambda: [Length(tokens) for tokens in LENGTHS])
    _counts: dict[int, int] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)
    _blocks: int = 0

    @property
    def recurring_share(self) -> float:
        """Share of all prompt tokens that recur: the hit rate of ideal caches."""
        return self.recurring_tokens / self.tokens if self.tokens else 0.0

    def add(self, names: Sequence[int], tokens: int) -> None:
        """Count a request of `tokens` prompt tokens; names: of its blocks, see `record.RecordedRequest`."""
        counts = self._counts
        whole = array("Q", names[: tokens // BLOCK_TOKENS])
        leading = bisect_left(whole, True, key=lambda name: name not in counts)
        # An engine computes the last token in any case, and with it the block that it is in.
        self.recurring_tokens += min(leading, (tokens - 1) // BLOCK_TOKENS) * BLOCK_TOKENS
        for name in whole:
            counts[name] = counts.get(name, 0) + 1
        self.requests += 1
        self.tokens += tokens
        self._kept.append(_Kept(whole, tokens))
        self._blocks += len(whole) + 1
        if self._blocks >= self.window_blocks:
            self._close_window()

    def finish(self) -> None:
        """There are no more requests."""
        if self._kept:
            self._close_window()

    def _close_window(self) -> None:
        counts = self._counts
        for names, tokens in self._kept:
            # Who has a beginning has all beginnings of it, so counts fall along a prompt.
            depth = bisect_left(names, True, key=lambda name: counts[name] < 2)
            times = counts[names[depth - 1]] if depth else 1
            cell = self.cells[_bucket(_ROW_STARTS, depth * BLOCK_TOKENS)][_bucket(_COLUMN_STARTS, times)]
            cell.requests += 1
            cell.tokens += tokens
        for length in self.lengths:
            last = length.tokens // BLOCK_TOKENS - 1
            beginnings = Counter(names[last] for names, _ in self._kept if len(names) > last)
            length.requests += beginnings.total()
            length.distinct += len(beginnings)
            length.recurring += sum(count for count in beginnings.values() if count > 1)
            length.largest += max(beginnings.values(), default=0)
        self.windows += 1
        self._counts, self._kept, self._blocks = {}, [], 0


def _bucket(starts: Sequence[int], value: int) -> int:
    return max(place for place, start in enumerate(starts) if start <= value)
