"""In-flight counts that several processes see as one, in shared memory and without a lock.

A matrix of 32-bit numbers: a row for each backend slot, a column for each process. A process writes its own
column and nobody else's, so no write is ever lost and nothing has to be atomic but one aligned store of four
bytes, which it is. The count of a backend is the sum of its row. When a process dies, whoever outlives it
sets its column to zero (`reclaim`), and its leases are given back. There is a second matrix of the same form
for trials, and a third, of seconds, for claims: since when somebody in the line of a process has waited for a
backend. A free place belongs to the earliest claim. Whoever gives a lease back rings the bell of the process
that has it, an eventfd. A claim that leaves a free place alone for `CLAIM_SECONDS` lapses, so that a process
that hangs, or cannot use the place after all, holds up nobody for longer.

What this does not give: check and take as one step. Two processes may both see the last free place and both
take it, within microseconds of each other. Where that matters, each looks at the sum again after taking.

Cost: memory is 16 bytes for each slot and process (4,096 slots, 4 workers: 320 kB, touched where used);
a take is one cell (0.1 µs), a read is one row: 0.2 µs for 4 workers, 0.7 µs for 64 (`benchmarks/workers.py`).

Which backend has which slot is not known here: see `workers.slots`. Must never hold a number that outlives
both its process and `reclaim`.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

from prefix_router.routing.fleet import InFlight

CAPACITY = 4096
"""Backend slots. A fleet is smaller by far; the rest is for backends that left and still have leases."""

SUPERVISOR = 0
"""The column of the process that owns the workers. It takes no leases; workers count from 1."""

CLAIM_SECONDS = 0.25
"""How long a free place is kept for who claims it; some rounds of looking again (`gate.RECHECK_SECONDS`)."""

_CELL_BYTES = 4
_CLAIM_BYTES = 8


class SharedCounts:
    """The matrices, as one process sees them.

    descriptor: an open file over the memory. bells: eventfds, one for each process but the supervisor. The
    other processes inherit both.
    """

    def __init__(
        self, descriptor: int, workers: int, capacity: int = CAPACITY, bells: Sequence[int] = ()
    ) -> None:
        """Map what `create` made. Raises OSError, and ValueError when the file is too small."""
        self.descriptor = descriptor
        self.capacity = capacity
        self.processes = workers + 1
        self.memory = mmap.mmap(descriptor, _file_bytes(workers, capacity))
        self.cells = memoryview(self.memory).cast("i")
        # Native and aligned: each number is loaded whole. A format with "<" would read it byte by byte.
        self.row = struct.Struct(f"@{self.processes}i")
        self.trials_cell = capacity * self.processes
        self.claims_start = 2 * capacity * self.row.size
        self.claims = memoryview(self.memory)[self.claims_start :].cast("d")
        self.claims_row = struct.Struct(f"@{self.processes}d")
        self.bells = tuple(bells)

    @classmethod
    def create(cls, workers: int, capacity: int = CAPACITY) -> SharedCounts:
        """Make the matrices, all zero, in memory that lives as long as anybody has it open. Needs Linux."""
        descriptor = os.memfd_create("prefix-router-in-flight")
        try:
            os.ftruncate(descriptor, _file_bytes(workers, capacity))
            bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
            return cls(descriptor, workers, capacity, bells)
        except BaseException:
            os.close(descriptor)
            raise

    def in_flight(self, slot: int, process: int) -> SharedInFlight:
        """Return the counter of the backend at `slot`, for leases that `process` takes."""
        if not (0 <= slot < self.capacity and 0 <= process < self.processes):
            raise IndexError(f"no cell for slot {slot} of {self.capacity}, process {process}")
        return SharedInFlight(self, slot, process)

    def in_use(self, slot: int) -> bool:
        """Whether any process holds a lease on the backend at `slot`, or claims it."""
        counter = self.in_flight(slot, SUPERVISOR)
        return counter.count != 0 or counter.trials != 0 or counter.claimed()

    def ring(self, process: int) -> None:
        """Have a worker look at its line."""
        if 0 < process <= len(self.bells):
            with suppress(BlockingIOError):
                os.eventfd_write(self.bells[process - 1], 1)

    def reclaim(self, process: int) -> int:
        """Give back everything that a dead process holds; return how many leases that were. O(slots)."""
        cells = self.cells
        held = 0
        for cell in range(process, self.trials_cell, self.processes):
            held += cells[cell]
            cells[cell] = 0
            cells[self.trials_cell + cell] = 0
            self.claims[cell] = 0.0
        for other in range(1, self.processes):
            self.ring(other)
        return held

    def close(self) -> None:
        """Let nobody else attach; a second time does nothing. The memory lasts as long as a counter of it."""
        descriptor, self.descriptor = self.descriptor, -1
        bells, self.bells = self.bells, ()
        if descriptor >= 0:
            os.close(descriptor)
        for bell in bells:
            os.close(bell)


class SharedInFlight(InFlight):
    """The counter of one backend: reads what all processes hold, changes what this process holds."""

    __slots__ = (
        "_cells",
        "_claim_row",
        "_claims",
        "_counts",
        "_kept_for",
        "_kept_since",
        "_lease",
        "_lease_row",
        "_memory",
        "_process",
        "_trial",
        "_trial_row",
        "_unpack",
        "slot",
    )

    def __init__(self, counts: SharedCounts, slot: int, process: int) -> None:
        self.slot = slot
        self._process = process
        self._counts = counts
        self._claims = counts.claims_row.unpack_from
        self._claim_row = counts.claims_start + slot * counts.claims_row.size
        self._kept_for = 0.0
        self._kept_since = 0.0
        self._cells = counts.cells
        self._memory = counts.memory
        self._unpack = counts.row.unpack_from
        self._lease = slot * counts.processes + process
        self._trial = counts.trials_cell + self._lease
        self._lease_row = slot * counts.row.size
        self._trial_row = (counts.capacity + slot) * counts.row.size

    @property
    def count(self) -> int:  # type: ignore[override]
        """Leases of all processes. Read-only here: a sum has no cell to write to."""
        return sum(self._unpack(self._memory, self._lease_row))

    @property
    def trials(self) -> int:  # type: ignore[override]
        """Unproven trials of all processes."""
        return sum(self._unpack(self._memory, self._trial_row))

    def take(self) -> None:
        """Count one lease of this process more."""
        self._cells[self._lease] += 1

    def give(self) -> None:
        """Count one lease of this process less, and let the process know that has waited for it longest."""
        self._cells[self._lease] -= 1
        claims = self._claims(self._memory, self._claim_row)
        if any(claims):
            _, process = min((since, process) for process, since in enumerate(claims) if since)
            if process != self._process:
                self._counts.ring(process)

    def claim(self, since: float | None) -> None:
        """Say since when (seconds, monotonic) somebody in this process waits; None for nobody."""
        self._counts.claims[self._lease] = since or 0.0

    def claimed(self) -> bool:
        """Whether a free place belongs to another process, where somebody has waited for longer."""
        claims = self._claims(self._memory, self._claim_row)
        if not any(claims):
            return False
        earliest = min(since for since in claims if since)
        if earliest == claims[self._process]:
            return False
        now = time.monotonic()
        if earliest != self._kept_for:
            self._kept_for, self._kept_since = earliest, now
        return now - self._kept_since < CLAIM_SECONDS

    def begin_trial(self) -> None:
        """Count one trial of this process more."""
        self._cells[self._trial] += 1

    def end_trial(self) -> None:
        """Count one trial of this process less."""
        self._cells[self._trial] -= 1


def _file_bytes(workers: int, capacity: int) -> int:
    if workers < 1 or capacity < 1:
        raise ValueError(f"expected workers and slots, got {workers} and {capacity}")
    return capacity * (workers + 1) * (2 * _CELL_BYTES + _CLAIM_BYTES)
