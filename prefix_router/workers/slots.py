"""Which backend counts in which row of the shared matrix, and when a row may go to another backend.

Only the pool assigns slots. A row that changed hands too early would mix the leases of two backends, so a
slot is free again only when two things are true: every worker has confirmed a fleet without the backend that
had it (from then on nobody takes a lease there), and the row is zero (everybody has given back). Bounded by
the capacity of the matrix; O(slots that are waiting) for each assignment.
"""

from __future__ import annotations

from collections.abc import Iterable

from prefix_router.workers.shared_counts import SUPERVISOR, SharedCounts, SharedInFlight


class SlotsExhaustedError(Exception):
    """There is no free row: too many backends, or too many that have left and still run requests."""


class BackendSlots:
    """Hands out rows of `counts` to backends, and takes them back."""

    def __init__(self, counts: SharedCounts) -> None:
        self.counts = counts
        self._assigned: set[int] = set()
        self._left_with: dict[int, int] = {}
        self._confirmed = 0
        self._first_unused = 0

    def in_flight(self) -> SharedInFlight:
        """Return the counter of a backend that has just joined. Raises SlotsExhaustedError."""
        slot = self._free_slot()
        self._assigned.add(slot)
        return self.counts.in_flight(slot, SUPERVISOR)

    def published(self, version: int, slots: Iterable[int]) -> None:
        """Note that the fleet `version` uses exactly these slots."""
        used = set(slots)
        for slot in self._assigned - used:
            self._left_with[slot] = version
        self._assigned = used

    def confirmed(self, version: int) -> None:
        """Note that every worker has taken over the fleet `version`."""
        self._confirmed = version

    def _free_slot(self) -> int:
        for slot, version in self._left_with.items():
            if version <= self._confirmed and not self.counts.in_use(slot):
                del self._left_with[slot]
                return slot
        if self._first_unused == self.counts.capacity:
            raise SlotsExhaustedError(
                f"{len(self._assigned)} backends and {len(self._left_with)} that have left and still run "
                f"requests are more than the {self.counts.capacity} that several workers can count"
            )
        self._first_unused += 1
        return self._first_unused - 1
