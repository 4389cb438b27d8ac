"""A lease: one taken in-flight slot on one backend, given back exactly once.

The count is the number every decision rests on, so it is taken without an await after the decision and
given back by `with`, on every way out: return, error, cancellation. A lease holds the counter itself,
not the backend's name: when the backend leaves the fleet or another one takes its name, the count that
was taken is still the one that is given back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from prefix_router.observe.events import RequestRecord
    from prefix_router.routing.decision import Visit
    from prefix_router.routing.fleet import InFlight, Member


class Keeper(Protocol):
    """Whoever has something to give to somebody else when a lease ends. Must not raise."""

    def released(self, member: Member) -> None:
        """Hear that a lease on `member` has been given back."""

    def proven(self, member: Member) -> None:
        """Hear that a trial of `member` has ended and its lease goes on."""


class Lease:
    """Counts from construction until `release` (or the end of a `with` block).

    On a half-open backend it is also a trial, until `prove` or `release`: the next trial may begin as soon as
    this one has shown that the backend works, however long its response takes.
    """

    __slots__ = ("_clock", "_in_flight", "_keeper", "_member", "_timer", "_trial", "_visit", "record")

    def __init__(self, member: Member, keeper: Keeper | None = None) -> None:
        """`keeper` is told, once, when the trial and when the lease has ended."""
        self._member = member
        self._keeper = keeper
        in_flight = member.in_flight
        in_flight.take()
        self._in_flight: InFlight | None = in_flight
        self._trial: InFlight | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._visit: Visit | None = None
        self._clock: Callable[[], float] = _no_clock
        self.record: RequestRecord | None = None
        if member.state is BackendState.HALF_OPEN:
            in_flight.begin_trial()
            self._trial = in_flight

    @classmethod
    def within_limit(cls, member: Member, keeper: Keeper) -> Lease | None:
        """Return a lease, None when the backend has more requests with it than it may get.

        Another process may have taken the last place since somebody looked. Each looks again after taking, so
        that of those who took it together at most one keeps it, and perhaps none.
        """
        lease = cls(member)
        limit = member.backend.max_in_flight
        if limit is not None and member.in_flight.count > limit:
            lease.release()
            return None
        lease._keeper = keeper
        return lease

    def begin_visit(self, visit: Visit, clock: Callable[[], float], *, streamed: bool) -> None:
        """Tell `visit` now that the request is sent, and with the lease's end that it has ended.

        What the backend counted is in the lease's `record` by then, if it is anywhere.
        """
        self._visit, self._clock = visit, clock
        visit.sent(clock(), streamed=streamed)

    def first_token(self, now: float) -> None:
        """Tell the visit, if there is one, that the first token has come."""
        if self._visit is not None:
            self._visit.first_token(now)

    @property
    def on_trial(self) -> bool:
        """Whether this request is the one by which a half-open backend is judged."""
        return self._trial is not None

    def limit_trial(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """End the trial after `seconds` even without an answer.

        A single slow or hung request must not keep a backend that has recovered out of service; what became
        of the request is judged when it ends, as ever.
        """
        self._timer = loop.call_later(seconds, self.prove)

    def prove(self) -> None:
        """End the trial: the backend has answered. Further calls do nothing."""
        if self._end_trial() and self._keeper is not None:
            self._keeper.proven(self._member)

    def release(self) -> None:
        """Give the slot back; further calls do nothing."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            return
        self._end_trial()
        in_flight.give()
        try:
            self._end_visit()
        finally:  # whatever a strategy makes of it, the place is free
            if self._keeper is not None:
                self._keeper.released(self._member)

    def _end_visit(self) -> None:
        visit, self._visit = self._visit, None
        if visit is None:
            return
        record = self.record
        if record is None:
            visit.ended(self._clock(), None, None, None)
        else:
            counts = record.cached_tokens, record.prompt_tokens, record.completion_tokens
            visit.ended(self._clock(), *counts)

    def _end_trial(self) -> bool:
        trial, self._trial = self._trial, None
        if trial is None:
            return False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        trial.end_trial()
        return True

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _no_clock() -> float:
    """Stand in for the clock of a lease that nobody follows."""
    return 0.0
