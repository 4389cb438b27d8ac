"""Who may go to a backend now, who waits in line, and who is sent away.

Bookkeeping only: nothing in here waits, and time comes in as an argument. The order in which a request is
judged is the order in which clients may rely on it:

    1. nobody in service could take it          UNROUTABLE   an idle line would not help it
    2. room for it, and nobody like it waits    ADMIT
    3. the line is full                         SHED
    4. otherwise                                WAIT         first come, first served

The line is made of lanes, one for each set of `Needs`: requests of one lane could use the same backends, so
only the head of a lane has to be looked at, and a lane that must wait for its one backend holds up no other.
Whoever frees something asks `next` until it says None. It answers with the earliest waiter that can go, so
within a lane nobody is overtaken, and between lanes only by whoever can use what the earlier one cannot.

Every strategy decides whenever there is `Room.FREE`; that is what makes one look at a lane enough.

Cost: judging O(backends), joining and leaving O(1), `next` O(lanes × backends) at most and O(lanes) where one
backend was freed. There are at most `max_waiting` waiters and as many lanes. It must never hold a waiter
that has left.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefix_router.routing.fleet import BackendName, Fleet, InFlight, Member

MAX_RETRY_AFTER_SECONDS = 60
"""Clients commonly take no longer hint than a minute seriously."""

_PACE_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much may be under way, and how much may wait for it.

    max_in_flight: requests on all backends together, 0 for no limit; a backend's own limit is
    `Backend.max_in_flight`. max_waiting: length of the line, 0 for none. timeout_seconds: how long one
    request may stand in it, all its attempts together.
    """

    max_in_flight: int = 0
    max_waiting: int = 1024
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Needs:
    """Which backends a request could go to: those that serve `model` and are not `excluded`.

    only: the one backend that knows what the request continues, whatever models it lists; while it is in
    service no other will do.
    """

    model: str | None
    excluded: frozenset[BackendName] = frozenset()
    only: BackendName | None = None

    def may_use(self, member: Member) -> bool:
        """Whether the request could go to `member`, however that is doing."""
        return (member.name == self.only or member.serves(self.model)) and member.name not in self.excluded

    def candidates(self, fleet: Fleet) -> Iterable[Member]:
        """The backends in service that the request could go to, full ones too."""
        only = None if self.only is None else fleet.by_name.get(self.only)
        if only is not None and only.in_service() and self.may_use(only):
            return (only,)
        return (member for member in fleet.members if member.in_service() and self.may_use(member))


class Room(Enum):
    """What a fleet has for a request."""

    FREE = "free"
    FULL = "full"
    """Whoever could take it is at a limit of ours."""
    NONE = "none"
    """Nobody could take it, limits or no limits."""


def room_for(needs: Needs, fleet: Fleet) -> Room:
    """Look for a backend. O(backends)."""
    room = Room.NONE
    for member in needs.candidates(fleet):
        if not member.full():
            return Room.FREE
        room = Room.FULL
    return room


class Verdict(Enum):
    """What to do with a request."""

    ADMIT = "admit"
    WAIT = "wait"
    SHED = "shed"
    UNROUTABLE = "unroutable"


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the line. `place` grows with each arrival; 0 before the first `join`.

    since: when it came (seconds, of the clock that all processes share).
    """

    needs: Needs
    place: int = field(default=0, init=False)
    since: float = field(default=0.0, kw_only=True)


T = TypeVar("T", bound=Ticket)


class Admission(Generic[T]):
    """The line, and the count of what is under way.

    `limits` may be replaced at any time: what is above a new limit stays and counts. `in_flight` is the
    number of leases, kept by the caller.
    """

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self.in_flight = 0
        self.waiting = 0
        self._lanes: dict[Needs, OrderedDict[int, T]] = {}
        self._last_place = 0
        self._moves: deque[float] = deque(maxlen=_PACE_SAMPLES)

    @property
    def at_limit(self) -> bool:
        """Whether the whole router is at its limit, whatever single backends could take."""
        return 0 < self.limits.max_in_flight <= self.in_flight

    def verdict(self, needs: Needs, fleet: Fleet) -> Verdict:
        """Judge a newcomer."""
        room = room_for(needs, fleet)
        if room is Room.NONE:
            return Verdict.UNROUTABLE
        if room is Room.FREE and not self.at_limit and needs not in self._lanes:
            return Verdict.ADMIT
        return Verdict.SHED if self.waiting >= self.limits.max_waiting else Verdict.WAIT

    def join(self, ticket: T) -> None:
        """Stand at the end of the line. The caller has asked for the verdict."""
        self._last_place += 1
        ticket.place = self._last_place
        self._lanes.setdefault(ticket.needs, OrderedDict())[ticket.place] = ticket
        self.waiting += 1

    def put_back(self, ticket: T) -> None:
        """Let who has left because it was its turn stand at the head of its lane again: it could not go."""
        lane = self._lanes.setdefault(ticket.needs, OrderedDict())
        lane[ticket.place] = ticket
        lane.move_to_end(ticket.place, last=False)
        self.waiting += 1

    def leave(self, ticket: T) -> None:
        """Go away, from wherever in the line, for whatever reason; a second time does nothing."""
        lane = self._lanes.get(ticket.needs)
        if lane is None or lane.pop(ticket.place, None) is None:
            return
        if not lane:
            del self._lanes[ticket.needs]
        self.waiting -= 1
        if not self.waiting:
            self._moves.clear()

    def next(self, fleet: Fleet, freed: BackendName | None = None) -> T | None:
        """Return the earliest waiter that can go now; the caller makes it leave.

        freed: the one backend at which something has changed since everybody was looked at; None for more.
        """
        if self.at_limit:
            return None
        member = None
        if freed is not None and not self.limits.max_in_flight:
            member = fleet.by_name.get(freed)
            if member is None or not member.admits():
                return None
        earliest: T | None = None
        for needs, lane in self._lanes.items():
            head = next(iter(lane.values()))
            if (
                (earliest is None or head.place < earliest.place)
                and (member is None or needs.may_use(member))
                and room_for(needs, fleet) is Room.FREE
            ):
                earliest = head
        return earliest

    def heads(self) -> list[int]:
        """Return the places of the heads of all lanes; none while nobody could go anyway."""
        return [] if self.at_limit else [next(iter(lane)) for lane in self._lanes.values()]

    def claims(self, fleet: Fleet) -> dict[InFlight, float]:
        """Return since when somebody waits for each backend that could be taken. O(lanes × backends)."""
        claims: dict[InFlight, float] = {}
        if self.at_limit:
            return claims
        for needs, lane in self._lanes.items():
            since = next(iter(lane.values())).since
            for member in needs.candidates(fleet):
                claims[member.in_flight] = min(since, claims.get(member.in_flight, since))
        return claims

    def stranded(self, fleet: Fleet) -> list[T]:
        """Return the waiters that nobody in service could take any more, in order of arrival."""
        lost = [lane for needs, lane in self._lanes.items() if room_for(needs, fleet) is Room.NONE]
        return sorted((ticket for lane in lost for ticket in lane.values()), key=lambda ticket: ticket.place)

    def moved(self, now: float) -> None:
        """Note that somebody has got from the line to a backend; `now` in seconds of any clock."""
        if self.waiting:  # the pace of a line that has ended says nothing about the next one
            self._moves.append(now)

    def retry_after_seconds(self, now: float) -> int:
        """Say when it makes sense to come again: when those who wait now will be through, at their pace.

        At most their timeout, because then they are gone one way or the other. At least 1.
        """
        ceiling = max(1, min(MAX_RETRY_AFTER_SECONDS, ceil(self.limits.timeout_seconds)))
        if not self.waiting:
            return 1
        if not self._moves:
            return ceiling
        seconds_each = (now - self._moves[0]) / len(self._moves)
        return max(1, min(ceiling, ceil(self.waiting * seconds_each)))
