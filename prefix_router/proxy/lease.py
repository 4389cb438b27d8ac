"""A lease: one taken in-flight slot on one backend, given back exactly once.

The count is the number every decision rests on, so it is taken without an await after the decision and
given back by `with`, on every way out: return, error, cancellation. A lease holds the counter itself,
not the backend's name: when the backend leaves the fleet or another one takes its name, the count that
was taken is still the one that is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from types import TracebackType

    from prefix_router.routing.fleet import InFlight, Member


class Lease:
    """Counts from construction until `release` (or the end of a `with` block).

    On a half-open backend it is also a trial, until `prove` or `release`: the next trial may begin as soon as
    this one has shown that the backend works, however long its response takes.
    """

    __slots__ = ("_in_flight", "_trial")

    def __init__(self, member: Member) -> None:
        in_flight = member.in_flight
        in_flight.count += 1
        self._in_flight: InFlight | None = in_flight
        self._trial: InFlight | None = None
        if member.state is BackendState.HALF_OPEN:
            in_flight.trials += 1
            self._trial = in_flight

    def prove(self) -> None:
        """End the trial: the backend has answered. Further calls do nothing."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.trials -= 1

    def release(self) -> None:
        """Give the slot back; further calls do nothing."""
        self.prove()
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.count -= 1

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
