"""Where a request gets its backend: at once, after standing in line, or not at all.

`routing.admission` says which of the three; this file decides, takes leases, and does the waiting. Decision
and lease are one step without an await, for a waiter too: whoever gives a lease back decides for the earliest
waiter that can use it and takes the lease in its name. So a place never lies open for a newcomer to grab,
each lease that ends wakes one request and no more, and a wake-up cannot be lost.

A waiter leaves the line by exactly one of four ways: it is given a lease, nobody in service could take it any
more, its time is up, or its task is cancelled because its client has left. A lease that was given to a task
which is cancelled before it runs again goes back, and on to the next in line.

What calls nobody here, such as a new fleet or other limits, is noticed by looking again every
`RECHECK_SECONDS` while somebody waits.

Several processes share the places of a backend, and each has its own line. So a line says since when somebody
waits for each backend (`InFlight.claim`), a place counts as taken for everybody but the line that has waited
longest, and that one is woken (`look_again`) by whoever frees it. What this process saw may be out of date
when it acts: then a request looks again, or stands in line where it stood.

Without a limit, a request costs two comparisons here. It must never await between decision and lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec import Struct

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.lease import Lease
from prefix_router.routing.admission import Admission, AdmissionLimits, Needs, Ticket, Verdict
from prefix_router.routing.decision import Decision, Query, Reason, Strategy
from prefix_router.routing.fleet import BackendName, Fleet, InFlight, Member

RECHECK_SECONDS = 0.1
_LOOKS = 5
"""How often a request looks for room of which it hears, before it believes that its strategy has nobody."""


class HasFleet(Protocol):
    """Whoever knows the fleet."""

    @property
    def fleet(self) -> Fleet:
        """The current snapshot."""


class Question(Struct, frozen=True):
    """What is to be decided.

    pinned: the backend that knows what the request continues; it is waited for, but not past its health.
    streamed: whether the answer is asked for as a stream.
    """

    query: Query
    strategy: Strategy
    pinned: BackendName | None = None
    streamed: bool = False

    @property
    def excluded(self) -> frozenset[BackendName]:
        """Backends that this request has been turned away from."""
        return self.query.failed | self.query.refused

    def needs(self) -> Needs:
        """Return what the request needs of a backend."""
        return Needs(self.query.model, self.excluded, self.pinned)

    def decide(self, fleet: Fleet) -> Decision | None:
        """Decide on `fleet`; None when nobody can take the request now."""
        if self.pinned is not None:
            member = fleet.by_name.get(self.pinned)
            if member is not None and member.in_service() and self.pinned not in self.excluded:
                return None if member.full() else Decision(member, Reason.CONTINUATION)
        return self.strategy.choose(self.query, fleet)


class Entry(Struct, frozen=True):
    """A decision and the lease that goes with it. Whoever holds it gives the lease back."""

    decision: Decision
    lease: Lease


class Refusal(Enum):
    """Why a request got no backend."""

    UNROUTABLE = "unroutable"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"


@dataclass(slots=True, eq=False)
class _Waiter(Ticket):
    question: Question
    turn: asyncio.Future[Entry | Refusal]


class Gate:
    """Admits requests to the backends of one fleet."""

    def __init__(
        self,
        store: HasFleet,
        limits: AdmissionLimits,
        clock: Callable[[], float],
        *,
        among_others: bool = False,
    ) -> None:
        """`clock` gives seconds (monotonic), the same in all processes.

        among_others: whether other processes share the places of the backends.
        """
        self._store = store
        self._clock = clock
        self._admission: Admission[_Waiter] = Admission(limits)
        self._recheck: asyncio.TimerHandle | None = None
        self._among_others = among_others
        self._claims: dict[InFlight, float] = {}
        self._claims_fleet: Fleet | None = None
        self._claims_heads: list[int] = []

    @property
    def limits(self) -> AdmissionLimits:
        """What is allowed. Replace it to change that; those who wait are looked at again."""
        return self._admission.limits

    @limits.setter
    def limits(self, limits: AdmissionLimits) -> None:
        self._admission.limits = limits
        self.look_again()

    @property
    def waiting(self) -> int:
        """Requests that stand in line."""
        return self._admission.waiting

    def retry_after_seconds(self) -> int:
        """When a request that was refused may come again."""
        return self._admission.retry_after_seconds(self._clock())

    async def enter(self, question: Question, record: RequestRecord) -> Entry | Refusal:
        """Return a decision and its lease, after waiting for them if need be.

        The time in line is added to `record.queue_seconds`, and what is left of the timeout is for the next
        attempt. When the task is cancelled, nothing is left of it in the line.
        """
        return self.enter_at_once(question) or await self._wait(question, record)

    def enter_at_once(self, question: Question) -> Entry | None:
        """Return a decision and its lease if nobody has to be waited for, else None."""
        admission = self._admission
        if admission.waiting:
            self._serve_line()
            if admission.verdict(question.needs(), self._store.fleet) is not Verdict.ADMIT:
                return None
        return None if admission.at_limit else self._take(question)

    async def _wait(self, question: Question, record: RequestRecord) -> Entry | Refusal:
        admission = self._admission
        needs = question.needs()
        outcome = self._judge(question, needs)
        if outcome is not None:
            return outcome
        waited = record.queue_seconds or 0.0
        began = self._clock()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(needs, question, loop.create_future(), since=began)
        admission.join(waiter)
        patience = max(0.0, admission.limits.timeout_seconds - waited)
        deadline = loop.call_later(patience, self._settle, waiter, Refusal.QUEUE_TIMEOUT)
        self._keep_rechecking()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            _give_back(waiter.turn)
            raise
        finally:
            deadline.cancel()
            admission.leave(waiter)
            self._keep_rechecking()
            record.queue_seconds = waited + self._clock() - began

    def _judge(self, question: Question, needs: Needs) -> Entry | Refusal | None:
        """Return what becomes of a request that did not get in at once; None when it has to wait."""
        for _ in range(_LOOKS):
            match self._admission.verdict(needs, self._store.fleet):
                case Verdict.UNROUTABLE:
                    break
                case Verdict.SHED:
                    return Refusal.QUEUE_FULL
                case Verdict.WAIT:
                    return None
                case Verdict.ADMIT:  # another process has freed a place meanwhile
                    entry = self._take(question)
                    if entry is not None:
                        return entry
        return Refusal.UNROUTABLE

    def _take(self, question: Question) -> Entry | None:
        decision = question.decide(self._store.fleet)
        if decision is None:
            return None
        lease = Lease.within_limit(decision.member, self)
        if lease is None:
            return None
        self._admission.in_flight += 1
        if decision.visit is not None:
            try:
                lease.begin_visit(decision.visit, self._clock, streamed=question.streamed)
            except BaseException:
                lease.release()
                raise
        return Entry(decision, lease)

    def released(self, member: Member) -> None:
        """Hear from a lease that it has been given back."""
        self._admission.in_flight -= 1
        if self._admission.waiting:
            self._serve_line(member.name)

    def proven(self, member: Member) -> None:
        """Hear from a lease that its trial has ended: the next one may begin."""
        if self._admission.waiting:
            self._serve_line(member.name)

    def _serve_line(self, freed: BackendName | None = None) -> None:
        """Give leases to waiters, earliest first, while there is room. `freed`: where there may be some."""
        too_late: list[_Waiter] = []
        while (waiter := self._admission.next(self._store.fleet, freed)) is not None:
            self._admission.leave(waiter)
            if waiter.turn.done():  # cancelled, and not yet awake to leave by itself
                continue
            try:
                entry = self._take(waiter.question)
            except Exception as error:  # noqa: BLE001  (raised where it belongs: not in who gave back a lease)
                waiter.turn.set_exception(error)
                continue
            if entry is None:
                too_late.append(waiter)
                continue
            waiter.turn.set_result(entry)
            self._admission.moved(self._clock())
        for waiter in reversed(too_late):
            self._admission.put_back(waiter)
        self._claim()

    def _settle(self, waiter: _Waiter, outcome: Entry | Refusal) -> None:
        self._admission.leave(waiter)
        if not waiter.turn.done():
            waiter.turn.set_result(outcome)

    def look_again(self) -> None:
        """Serve who waits, as far as there is room now, and send away whom nobody could serve any more."""
        self._claims_fleet = None
        self._serve_line()
        for waiter in self._admission.stranded(self._store.fleet):
            self._settle(waiter, Refusal.UNROUTABLE)

    def _keep_rechecking(self) -> None:
        """Have a timer while somebody waits, and none otherwise."""
        self._claim()
        if self._admission.waiting and self._recheck is None:
            self._recheck = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._rechecked)
        elif not self._admission.waiting and self._recheck is not None:
            self._recheck.cancel()
            self._recheck = None

    def _claim(self) -> None:
        """Let other processes see since when somebody waits here."""
        if not self._among_others:
            return
        admission, fleet = self._admission, self._store.fleet
        heads = admission.heads()
        if fleet is self._claims_fleet and heads == self._claims_heads:
            return
        self._claims_fleet, self._claims_heads = fleet, heads
        before, self._claims = self._claims, admission.claims(fleet)
        for in_flight in before.keys() - self._claims.keys():
            in_flight.claim(None)
        for in_flight, since in self._claims.items():
            if before.get(in_flight) != since:
                in_flight.claim(since)

    def _rechecked(self) -> None:
        self._recheck = None
        self.look_again()
        self._keep_rechecking()


def _give_back(turn: asyncio.Future[Entry | Refusal]) -> None:
    """Release the lease that came together with the cancellation."""
    if turn.done() and not turn.cancelled() and turn.exception() is None:
        outcome = turn.result()
        if isinstance(outcome, Entry):
            outcome.lease.release()
