"""Keeps the view of one engine true: reads its live messages, and asks for what was missed.

Nobody waits for a subscriber: who comes late, or is slow, or was cut off, has missed something. If the
operator has given the engine a replay socket, its last messages can be had again. They are asked for

- once connected, from 0: if the answer begins there, the view is whole;
- when a number is missing;
- after a connection was lost, and after `idle_seconds` without a message: from the last message that was
  followed. If the engine still has that one, it is the same engine, and what comes after it was missed. If
  not, it was restarted, or has forgotten it: then from 0 once more.

An answer may have holes itself, because the engine's socket drops what its queue cannot hold: then the rest
is asked for again, as long as that brings anything new, and twice more. While it asks, live messages wait
in the socket's own queue, which is bounded; what is dropped there is the next gap.

What cannot be had again is lost, and nobody is told about the engine until its cache is cleared or it is
started again: when its buffer has a hole or does not reach back far enough, and whenever something is missed
and there is no replay socket. When the replay socket does not answer, it is asked again later.

A subscriber never ends by itself: an error of a socket is logged, and it begins anew, later and later.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

import zmq
import zmq.asyncio

from prefix_router.kv_events.follower import BEFORE_ALL, Follower, Verdict
from prefix_router.kv_events.index import KvIndex
from prefix_router.kv_events.sockets import LiveSocket, Message, messages_since
from prefix_router.kv_events.source import Source
from prefix_router.kv_events.status import Count, Counters, EngineStatus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a subscriber waits, in seconds.

    idle: without a message, until it asks whether it has missed any. replay: for the next message of an
    answer. retry, longest_retry: after a failure; doubled with each one.
    """

    idle_seconds: float = 10.0
    replay_seconds: float = 5.0
    retry_seconds: float = 0.5
    longest_retry_seconds: float = 30.0


class _Answer(Enum):
    """What an answer of the replay socket came to."""

    COMPLETE = "complete"
    HOLE = "hole"
    """Something is missing in it, or its end did not come."""
    OTHER_LIFE = "other_life"
    """It is another engine's, or reaches back to nothing of what was followed."""


_MOST_STUCK = 2
"""How often the same messages may be missing in an answer before they are taken to be gone."""

_MOST_STRANGERS = 3
"""How often one question may find another engine than was followed. None is started that often."""


class Subscriber:
    """The reader of one engine's events. Start `run` in a task; cancel it to end it, then `leave`."""

    def __init__(
        self,
        source: Source,
        index: KvIndex,
        context: zmq.asyncio.Context,
        counters: Counters,
        patience: Patience,
    ) -> None:
        self.source = source
        self._index = index
        self._engine = index.join(source.backend, source.rank)
        self._follower = Follower(index, self._engine)
        self._context = context
        self._counters = counters
        self._patience = patience
        self._live: LiveSocket | None = None
        self._is_due = True
        """Whether to ask what was missed as soon as there is a connection."""
        self._ask_at = 0.0
        """When to ask otherwise, in seconds of the event loop's clock."""
        self._retry_seconds = 0.0
        """After a question that nobody answered: how long to wait; 0 after an answer."""
        self._reported = dict.fromkeys(Count, 0)

    def status(self) -> EngineStatus:
        """Return how it stands."""
        last, engine = self._follower.last, self._engine
        return EngineStatus(
            backend=self.source.backend,
            rank=self.source.rank,
            endpoint=self.source.endpoint,
            connected=self._live is not None and self._live.connected,
            out_of_sync=not engine.in_sync,
            last_sequence=None if last == BEFORE_ALL else last,
            blocks=len(engine),
            offloaded=engine.offloaded,
            skipped=engine.skipped,
            counts={count.value: self._follower.counts[count] for count in Count},
        )

    def leave(self) -> None:
        """Forget the engine. Nothing may be read after this."""
        self._index.leave(self.source.backend, self.source.rank)

    async def run(self) -> None:
        """Follow the events until cancelled."""
        pause = self._patience.retry_seconds
        while True:
            try:
                await self._read()
            except zmq.ZMQError as error:
                logger.warning("KV events of %s: %s; again in %.1f s", self.source.backend, error, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._patience.longest_retry_seconds)

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        live = self._live = LiveSocket(self._context, self.source.endpoint)
        try:
            while True:
                seconds = self._ask_at - clock() if live.connected else self._patience.idle_seconds
                message, was_cut_off = await live.wait(max(seconds, 0))
                self._follower.counts[Count.MALFORMED] += live.malformed
                live.malformed = 0
                if was_cut_off:
                    self._note_cut()
                if live.connected and (self._is_due or clock() >= self._ask_at):
                    await self._ask_what_was_missed()
                if message is not None:
                    await self._take(message)
                    if not self._retry_seconds:
                        self._ask_at = clock() + self._patience.idle_seconds
                self._report()
        finally:
            self._live = None
            live.close()
            self._note_cut()
            self._report()

    def _note_cut(self) -> None:
        """The engine may be another one when it comes back."""
        self._is_due = True
        if self.source.replay is None:
            self._follower.forget()
        else:
            self._follower.doubt()

    async def _take(self, message: Message) -> None:
        follower = self._follower
        verdict = follower.take(*message)
        if verdict is Verdict.OTHER_LIFE:
            verdict = follower.take(*message)
        if verdict is not Verdict.GAP:
            return
        if follower.sure:
            follower.counts[Count.GAPS] += 1
        if self.source.replay is not None:
            follower.doubt()
            if not self._retry_seconds:
                await self._ask_what_was_missed()
            if self._retry_seconds:
                return  # it will be asked again, and then has this message too
            if follower.take(*message) is not Verdict.GAP:
                return
        follower.lose(message.number - 1)
        follower.take(*message)

    async def _ask_what_was_missed(self) -> None:
        """Ask until nothing is missing, or nothing more is to be had; say when to ask again."""
        self._is_due = False
        follower = self._follower
        lost = follower.sure and not follower.whole
        if self.source.replay is not None and not lost:
            await self._ask_until_complete(self.source.replay)
        pause = self._retry_seconds or self._patience.idle_seconds
        self._ask_at = asyncio.get_running_loop().time() + pause

    async def _ask_until_complete(self, replay: str) -> None:
        follower = self._follower
        strangers = stuck = 0
        try:
            while True:
                before = follower.last
                answer = await self._ask(replay, over_holes=stuck >= _MOST_STUCK)
                if answer is _Answer.COMPLETE:
                    break
                stuck = stuck + 1 if follower.last == before else 0
                strangers += answer is _Answer.OTHER_LIFE
                if strangers > _MOST_STRANGERS or stuck > _MOST_STUCK + 1:
                    raise TimeoutError
        except TimeoutError:
            self._retry_seconds = min(
                max(self._retry_seconds * 2, self._patience.retry_seconds),
                self._patience.longest_retry_seconds,
            )
            logger.warning(
                "KV events of %s: no answer from %s; again in %.1f s",
                *(self.source.backend, replay, self._retry_seconds),
            )
        else:
            self._retry_seconds = 0.0
            follower.trust()

    async def _ask(self, replay: str, *, over_holes: bool) -> _Answer:
        """Ask once, and follow the answer as far as it goes. Raises TimeoutError when nothing comes.

        over_holes: what is missing in it is lost, and what follows is followed.
        """
        follower = self._follower
        follower.counts[Count.REPLAYS] += 1
        known = None if follower.last == BEFORE_ALL else follower.last
        is_first = True
        answer = messages_since(self._context, replay, known or 0, self._patience.replay_seconds)
        try:
            async with aclosing(answer):
                async for message in answer:
                    begins_late = is_first and message.number > (known or 0)
                    if begins_late and known is not None:
                        follower.forget()
                        return _Answer.OTHER_LIFE
                    is_first = False
                    verdict = follower.take(*message, live=False)
                    if verdict is Verdict.OTHER_LIFE:
                        return _Answer.OTHER_LIFE
                    if verdict is Verdict.GAP and not (begins_late or over_holes):
                        return _Answer.HOLE
                    if verdict is Verdict.GAP:
                        follower.lose(message.number - 1)
                        follower.doubt()
                        follower.take(*message, live=False)
        except TimeoutError:
            if is_first:
                raise
            return _Answer.HOLE
        if is_first and known is not None:
            follower.counts[Count.RESTARTS] += 1
            follower.forget()
            return _Answer.OTHER_LIFE
        if is_first:
            follower.begin()
        return _Answer.COMPLETE

    def _report(self) -> None:
        for count, total in self._follower.counts.items():
            if total != self._reported[count]:
                self._counters.counted(self.source.backend, count, total - self._reported[count])
                self._reported[count] = total
