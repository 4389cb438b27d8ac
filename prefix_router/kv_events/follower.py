"""Follows the numbered messages of one engine, and knows whether it has followed all of them. Pure.

An engine numbers its messages from 0. Who has followed all of them since 0, or since the engine cleared its
cache, knows exactly what the engine holds (`whole`); who has missed one does not, and cannot guess what was
in it. So:

    the next number               followed
    a number further on           a gap: what is between must be had again, or all is lost
    a number that was followed,   a duplicate: the same message came live and in a replay
      with the same bytes
    … with other bytes            another life: the engine was restarted, and its cache is empty

A message carries a time stamp, so no two lives send the same bytes under one number; the fingerprints of the
last `REMEMBERED` messages tell them apart.

Once something is lost, only what clears the cache is looked for; until then all events are passed over,
because a view that is not whole is of no use to anybody. O(1) for each message, and the cost of its events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum

from xxhash import xxh3_64_intdigest

from prefix_router.kv_events.engine import EngineBlocks
from prefix_router.kv_events.events import AllBlocksCleared, Event, decode
from prefix_router.kv_events.index import KvIndex
from prefix_router.kv_events.status import Count

REMEMBERED = 4096

BEFORE_ALL = -1
"""The last number of who is at the very beginning."""


class Verdict(Enum):
    """What became of a message."""

    FOLLOWED = "followed"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Messages before this one are missing. Nothing was done."""
    OTHER_LIFE = "other_life"
    """The engine is not the one that was followed. Everything is forgotten; the message was not followed."""


class Follower:
    """The messages of one engine. last: the number of the last one followed, None when that is not known.

    whole: whether all have been followed. sure: whether there is no sign that more was missed; without it the
    view is kept, but nobody is told about it.
    """

    def __init__(self, index: KvIndex, engine: EngineBlocks) -> None:
        self.last: int | None = None
        self.whole = False
        self.sure = False
        self.counts: Counter[Count] = Counter()
        self._index = index
        self._engine = engine
        self._fingerprints: dict[int, int] = {}

    def take(self, number: int, payload: bytes, *, live: bool = True) -> Verdict:
        """Follow a message if it is the next one. Never raises.

        live: whether it comes as it is sent, so that nothing after it can have been missed yet.
        """
        if self.last is None:
            if number:
                return Verdict.GAP
            self.begin()
            if live:
                self.trust()
        assert self.last is not None
        if number > self.last + 1:
            return Verdict.GAP
        if number <= self.last:
            if self._fingerprints.get(number) == xxh3_64_intdigest(payload):
                return Verdict.DUPLICATE
            self.counts[Count.RESTARTS] += 1
            self.forget()
            return Verdict.OTHER_LIFE
        self._follow(number, payload)
        return Verdict.FOLLOWED

    def begin(self) -> None:
        """Take the engine to have sent nothing up to here. Not sure yet."""
        self.forget()
        self.last = BEFORE_ALL
        self.whole = True

    def forget(self) -> None:
        """Take nothing to be known: neither what the engine holds nor where it is."""
        self._engine.clear()
        self._fingerprints.clear()
        self.last = None
        self.whole = self.sure = False

    def lose(self, number: int) -> None:
        """Give up what was known, and go on after `number`. Sure from there on."""
        self.counts[Count.LOST] += 1
        self.forget()
        self.last = number
        self.sure = True

    def doubt(self) -> None:
        """Tell nobody about the engine until it is certain that nothing was missed."""
        self.sure = False
        self._settle()

    def trust(self) -> None:
        """Take it as certain that nothing was missed since `last`."""
        self.sure = True
        self._settle()

    def _follow(self, number: int, payload: bytes) -> None:
        self._remember(number, payload)
        batch = decode(payload)
        if batch is None or batch.malformed:
            self.counts[Count.MALFORMED] += 1 if batch is None else batch.malformed
            self.lose(number)
            self._remember(number, payload)
            return
        self.counts[Count.EVENTS] += len(batch.events)
        self.counts[Count.UNKNOWN] += batch.unknown
        events = batch.events
        if not self.whole:
            events = _from_last_clearing(events)
            self.whole = bool(events)
        self._index.apply(self._engine, events)
        self._settle()

    def _remember(self, number: int, payload: bytes) -> None:
        self.last = number
        if len(self._fingerprints) >= REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        self._fingerprints[number] = xxh3_64_intdigest(payload)

    def _settle(self) -> None:
        self._engine.in_sync = self.whole and self.sure and not self._engine.overflown


def _from_last_clearing(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events from the last clearing of the cache on; none when there is none."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], AllBlocksCleared):
            return events[index:]
    return ()
