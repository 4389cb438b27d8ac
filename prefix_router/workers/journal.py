"""A journal that all workers write and read, in shared memory and without a lock: the `Peers` of a strategy.

One ring of bytes for each worker. Only its worker appends to it, and each reader keeps a cursor of its own. A
head says how many bytes were ever written; it is moved last, by one aligned store of eight bytes. So readers
cost a writer nothing, however slow they are, and none of them can hold up another.

What is given up for this: a writer does not wait, so a reader that is behind by more than a ring has lost
what is between and goes on at the newest note. A record carries its length and a checksum that starts with
its place, so that one which is overwritten while it is read, or not all there yet, is noticed. After such a
loss, and when a worker has died (the pool appends a note of it), readers let go of what they know of that
worker's running requests.

Whoever comes later, such as the successor of a worker that died, takes over the recent past, the former
worker's own included. For this it is marked where the first record of each half begins.

Cost: to find nothing new is 0.2 µs, and 0.05 for each worker. A request is three notes. With a prompt of
8,000 tokens they are 0.9 kB, 12 µs to write and 30 to take over, most of it in the index; with 128,000 tokens
1.9 kB, 15 and 48 µs (`python -m benchmarks.journal`). A read takes at most `MOST_READ_BYTES` and a record of
each ring.
Memory: `RING_BYTES` for each worker, touched where used.
"""

from __future__ import annotations

import mmap
import os
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING

from xxhash import xxh32_intdigest

from prefix_router.routing.strategies.shared import Gone, Note
from prefix_router.workers.note_bytes import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

RING_BYTES = 1 << 20
MOST_RECORD_BYTES = 1 << 14
"""A longer note is not written: it would be of a prompt with more levels than there are."""

MOST_READ_BYTES = 1 << 13
"""Of one ring at a time: a third of a millisecond's work."""

_frame = Struct("<II")
_HEADER_BYTES = 3 * 8
_SEED_MASK = (1 << 32) - 1


class Journal:
    """The rings, as one process sees them.

    descriptor: an open file over the memory, which the other processes inherit. Workers count from 1.
    """

    def __init__(self, descriptor: int, workers: int, ring_bytes: int = RING_BYTES) -> None:
        """Map what `create` made. Raises OSError, and ValueError when the file is too small."""
        self.descriptor = descriptor
        self.workers = workers
        self.ring_bytes = ring_bytes
        self.memory = mmap.mmap(descriptor, _file_bytes(workers, ring_bytes))
        # Native and aligned: each number is stored and loaded whole.
        numbers = memoryview(self.memory)[: workers * _HEADER_BYTES].cast("Q")
        self.heads = numbers[:workers]
        # Where the first record begins of the half of a ring that is being written, and of the one before.
        self._halves = numbers[workers : 2 * workers]
        self._halves_before = numbers[2 * workers :]

    @classmethod
    def create(cls, workers: int, ring_bytes: int = RING_BYTES) -> Journal:
        """Make empty rings, in memory that lives as long as anybody has it open. Needs Linux."""
        descriptor = os.memfd_create("prefix-router-journal")
        try:
            os.ftruncate(descriptor, _file_bytes(workers, ring_bytes))
            return cls(descriptor, workers, ring_bytes)
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, worker: int, note: Note) -> None:
        """Write into the ring of a worker. Only that worker may, or who outlives it."""
        data = to_bytes(note)
        if len(data) > MOST_RECORD_BYTES:
            return
        ring, ring_bytes = worker - 1, self.ring_bytes
        head = self.heads[ring]
        record = _frame.pack(len(data), _checksum(data, head)) + data
        start, offset = self._start(ring), head % ring_bytes
        fits = min(len(record), ring_bytes - offset)
        self.memory[start + offset : start + offset + fits] = record[:fits]
        if fits < len(record):
            self.memory[start : start + len(record) - fits] = record[fits:]
        end = self.heads[ring] = head + len(record)
        half = ring_bytes // 2
        if head // half != end // half:
            self._halves_before[ring], self._halves[ring] = self._halves[ring], end

    def data(self, worker: int, position: int, end: int) -> bytes | None:
        """The note whose record begins at `position` and ends by `end`; None when it is not whole."""
        size = end - position - _frame.size
        if size < 0:
            return None
        length, checksum = _frame.unpack(self._bytes(worker, position, _frame.size))
        if length > min(size, MOST_RECORD_BYTES):
            return None
        data = self._bytes(worker, position + _frame.size, length)
        return data if _checksum(data, position) == checksum else None

    def oldest(self, worker: int) -> int:
        """Where the oldest record begins that can be found. It may be overwritten at any time."""
        return self._halves_before[worker - 1]

    def reclaim(self, worker: int, now: float) -> None:
        """Let everybody know that a worker has died. Its successor goes on in the same ring."""
        self.append(worker, Gone(now))

    def close(self) -> None:
        """Let nobody else attach; a second time does nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _bytes(self, worker: int, position: int, size: int) -> bytes:
        start, offset = self._start(worker - 1), position % self.ring_bytes
        first = self.memory[start + offset : start + min(offset + size, self.ring_bytes)]
        return first if len(first) == size else first + self.memory[start : start + size - len(first)]

    def _start(self, ring: int) -> int:
        return self.workers * _HEADER_BYTES + ring * self.ring_bytes


class Cursor:
    """How far one reader has come in one ring.

    lost_bytes: what was overwritten before it was read.
    """

    __slots__ = ("_at", "_doubtful", "_journal", "_limit", "lost_bytes", "position", "worker")

    def __init__(self, journal: Journal, worker: int, limit: int | None = None) -> None:
        """Begin with the oldest note. limit: where to end for good; None to follow the ring."""
        self._journal = journal
        self._limit = limit
        self._doubtful = -1
        self._at = 0.0
        self.worker = worker
        self.position = journal.oldest(worker)
        self.lost_bytes = 0

    def read(self) -> list[Note]:
        """The next notes, at most `MOST_READ_BYTES` and one record of them."""
        journal, worker = self._journal, self.worker
        notes: list[Note] = []
        head = journal.heads[worker - 1]
        end = head if self._limit is None else self._limit
        if head - self.position > journal.ring_bytes:
            return [self._lose(end)]
        stop = min(end, self.position + MOST_READ_BYTES)
        while self.position < stop:
            data = journal.data(worker, self.position, end)
            note = None if data is None else from_bytes(data)
            if data is None or note is None:
                # Perhaps not all of it has arrived in this processor's view of the memory: look once more.
                if self._doubtful == self.position:
                    notes.append(self._lose(end))
                self._doubtful = self.position
                break
            self._at = note.at
            self.position += _frame.size + len(data)
            notes.append(note)
        return notes

    def _lose(self, end: int) -> Gone:
        """Go on at `end`."""
        self.lost_bytes += end - self.position
        self.position = end
        return Gone(self._at)


class JournalPeers:
    """The other workers, for one strategy of one worker, which knows nothing yet. A `Peers`."""

    def __init__(self, journal: Journal, worker: int) -> None:
        self._journal = journal
        self._worker = worker
        self._heads = journal.heads
        mine = self._heads[worker - 1]
        # No two visits have the same one: each writes more than one byte.
        self._numbers = count(mine + 1)
        others = (other for other in range(1, journal.workers + 1) if other != worker)
        self._cursors: Sequence[tuple[int, Cursor]] = [(n - 1, Cursor(journal, n)) for n in others]
        self._past: Cursor | None = Cursor(journal, worker, limit=mine)
        self._past_end = mine

    @property
    def lost_bytes(self) -> int:
        """What was overwritten before it was read."""
        return sum(cursor.lost_bytes for _, cursor in self._cursors)

    def number(self) -> int:
        """A number for a visit that no other visit of this worker has."""
        return next(self._numbers)

    def write(self, note: Note) -> None:
        """Tell the others: they see it the next time they read."""
        self._journal.append(self._worker, note)

    def read(self) -> Sequence[tuple[int, Note]]:
        """What the others did since the last time, and their numbers: in order of time, and bounded."""
        heads = self._heads
        notes: list[tuple[int, Note]] = []
        writers = 0
        for ring, cursor in self._cursors:
            if heads[ring] != cursor.position:
                notes += [(ring + 1, note) for note in cursor.read()]
                writers += 1
        past = self._past
        if past is not None:
            notes += [(self._worker, note) for note in past.read()]
            writers += 1
            if past.position >= self._past_end:
                self._past = None
        if writers > 1:
            notes.sort(key=_time)
        return notes


def _time(found: tuple[int, Note]) -> float:
    return found[1].at


def _checksum(data: bytes, position: int) -> int:
    return xxh32_intdigest(data, position & _SEED_MASK)


def _file_bytes(workers: int, ring_bytes: int) -> int:
    if workers < 1 or ring_bytes < 2 * MOST_RECORD_BYTES:
        raise ValueError(f"expected workers and room for their notes, got {workers} and {ring_bytes} bytes")
    return workers * (_HEADER_BYTES + ring_bytes)
