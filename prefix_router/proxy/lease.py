"""A lease: one taken in-flight slot on one backend, given back exactly once.

The count is the number every decision rests on, so it is taken without an await after the decision and
given back by `with`, on every way out: return, error, cancellation. A lease holds the counter itself,
not the backend's name: when the backend leaves the fleet or another one takes its name, the count that
was taken is still the one that is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from prefix_router.routing.fleet import InFlight


class Lease:
    """Counts from construction until `release` (or the end of a `with` block)."""

    __slots__ = ("_in_flight",)

    def __init__(self, in_flight: InFlight) -> None:
        in_flight.count += 1
        self._in_flight: InFlight | None = in_flight

    def release(self) -> None:
        """Give the slot back; further calls do nothing."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.count -= 1

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
