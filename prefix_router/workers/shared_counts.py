"""In-flight counts that several processes see as one, in shared memory and without a lock.

A matrix of 32-bit numbers: a row for each backend slot, a column for each process. A process writes its own
column and nobody else's, so no write is ever lost and nothing has to be atomic but one aligned store of four
bytes, which it is. The count of a backend is the sum of its row. When a process dies, whoever outlives it
sets its column to zero (`reclaim`), and its leases are given back. There is a second matrix of the same form
for trials.

What this does not give: check and take as one step. Two processes may both see the last free place and both
take it, within microseconds of each other; a threshold can be exceeded by one for each further process.

Cost: memory is 8 bytes for each slot and process (4,096 slots, 4 workers: 160 kB, touched where used);
a take is one cell (0.2 µs), a read is one row: 0.6 µs for 4 workers, 2.4 µs for 64.

Which backend has which slot is not known here: see `workers.slots`. Must never hold a number that outlives
both its process and `reclaim`.
"""

from __future__ import annotations

import mmap
import os
import struct

from prefix_router.routing.fleet import InFlight

CAPACITY = 4096
"""Backend slots. A fleet is smaller by far; the rest is for backends that left and still have leases."""

SUPERVISOR = 0
"""The column of the process that owns the workers. It takes no leases; workers count from 1."""

_CELL_BYTES = 4


class SharedCounts:
    """The two matrices, as one process sees them.

    descriptor: an open file over the memory; hand it on to the other processes (`attach`).
    """

    def __init__(self, descriptor: int, workers: int, capacity: int = CAPACITY) -> None:
        """Map what `create` made. Raises OSError, and ValueError when the file is too small."""
        self.descriptor = descriptor
        self.capacity = capacity
        self.processes = workers + 1
        self.memory = mmap.mmap(descriptor, _file_bytes(workers, capacity))
        self.cells = memoryview(self.memory).cast("i")
        # Native and aligned: each number is loaded whole. A format with "<" would read it byte by byte.
        self.row = struct.Struct(f"@{self.processes}i")
        self.trials_cell = capacity * self.processes

    @classmethod
    def create(cls, workers: int, capacity: int = CAPACITY) -> SharedCounts:
        """Make the matrices, all zero, in memory that lives as long as anybody has it open. Needs Linux."""
        descriptor = os.memfd_create("prefix-router-in-flight")
        try:
            os.ftruncate(descriptor, _file_bytes(workers, capacity))
            return cls(descriptor, workers, capacity)
        except BaseException:
            os.close(descriptor)
            raise

    def in_flight(self, slot: int, process: int) -> SharedInFlight:
        """Return the counter of the backend at `slot`, for leases that `process` takes."""
        if not (0 <= slot < self.capacity and 0 <= process < self.processes):
            raise IndexError(f"no cell for slot {slot} of {self.capacity}, process {process}")
        return SharedInFlight(self, slot, process)

    def in_use(self, slot: int) -> bool:
        """Whether any process holds a lease on the backend at `slot`."""
        counter = self.in_flight(slot, SUPERVISOR)
        return counter.count != 0 or counter.trials != 0

    def reclaim(self, process: int) -> int:
        """Give back everything that a dead process holds; return how many leases that were. O(slots)."""
        cells = self.cells
        held = 0
        for cell in range(process, self.trials_cell, self.processes):
            held += cells[cell]
            cells[cell] = 0
            cells[self.trials_cell + cell] = 0
        return held

    def close(self) -> None:
        """Let nobody else attach; a second time does nothing. The memory lasts as long as a counter of it."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class SharedInFlight(InFlight):
    """The counter of one backend: reads what all processes hold, changes what this process holds."""

    __slots__ = ("_cells", "_lease", "_lease_row", "_memory", "_trial", "_trial_row", "_unpack", "slot")

    def __init__(self, counts: SharedCounts, slot: int, process: int) -> None:
        self.slot = slot
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
        """Count one lease of this process less."""
        self._cells[self._lease] -= 1

    def begin_trial(self) -> None:
        """Count one trial of this process more."""
        self._cells[self._trial] += 1

    def end_trial(self) -> None:
        """Count one trial of this process less."""
        self._cells[self._trial] -= 1


def _file_bytes(workers: int, capacity: int) -> int:
    if workers < 1 or capacity < 1:
        raise ValueError(f"expected workers and slots, got {workers} and {capacity}")
    return 2 * capacity * (workers + 1) * _CELL_BYTES
