"""Sends a span of each finished request to a collector. Off unless it is asked for.

`SpanSender` is an observer. While it sends, it puts each sampled request into a bounded queue; a thread makes
spans of them (`observe.spans`) and sends them in batches (`observe.collector`). The event loop pays for a
look at the queue and an entry in it. What does not fit, or what the collector does not take, is dropped and
counted: a collector that is down costs no request a moment, no memory beyond the queue, and one line in the
log, with another one when it is back.

With several workers their pool does it, since all records come to it: the thread then takes no time from
those who serve clients. Never holds or sends prompt text: the records have none.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from prefix_router.observe.spans import Span, spans_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord

logger = logging.getLogger(__name__)

QUEUE_REQUESTS = 4096
"""Requests that wait for the thread at most; a few MB."""

BATCH_REQUESTS = 64
"""Small, because whoever makes a batch holds up the event loop for a part of it: the interpreter's lock."""

BATCH_SECONDS = 1.0
"""How long a request may wait for others to be sent with."""

_WAKE_AT = 512
_BREATH_SECONDS = 0.0005
_HURRIED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """endpoint: of the collector, without /v1/traces. authorization: a header for it. scheme: of clients."""

    endpoint: str
    service_name: str
    authorization: str | None = field(default=None, repr=False)
    scheme: str = "http"


class Way(Protocol):
    """The way to a collector."""

    def send(self, spans: Sequence[Span]) -> tuple[int, str]:
        """Send spans; return how many of them are lost, and why. Blocks, and never raises."""

    def hurry(self) -> None:
        """Try nothing again from now on. Called from another thread."""

    def close(self) -> None:
        """Let go of what it holds."""


def _way_to(options: TracingOptions) -> Way:
    from prefix_router.observe.collector import Collector  # needs an extra

    return Collector(options.endpoint, options.authorization, options.service_name)


class SpanSender:
    """An Observer that sends from `begin` to `end`. All methods but `close` return at once."""

    def __init__(
        self,
        way_to: Callable[[TracingOptions], Way] = _way_to,
        queue_requests: int = QUEUE_REQUESTS,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        self._way_to = way_to
        self._queue_requests = queue_requests
        self._batch_seconds = batch_seconds
        self._thread: _SendingThread | None = None
        self._ended: list[_SendingThread] = []
        self._sent_before = self._dropped_before = 0

    @property
    def sent(self) -> int:
        """Spans that a collector has taken."""
        return self._sent_before + sum(thread.sent for thread in self._threads())

    @property
    def dropped(self) -> int:
        """Spans lost so far."""
        return self._dropped_before + sum(thread.dropped for thread in self._threads())

    def begin(self, options: TracingOptions) -> None:
        """Send to this collector from now on. What is wrong with it is logged, and spans are dropped."""
        self.end()
        self._thread = _SendingThread(self._way_to, options, self._queue_requests, self._batch_seconds)

    def end(self) -> None:
        """Take no further request; what has been taken is sent soon."""
        if self._thread is not None:
            self._thread.finish()
            self._ended.append(self._thread)
            self._thread = None
        for thread in [thread for thread in self._ended if not thread.is_alive]:
            self._sent_before += thread.sent
            self._dropped_before += thread.dropped
            self._ended.remove(thread)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """End, and wait until all is sent. Blocks, but hardly longer than `timeout_seconds`."""
        self.end()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._ended:
            thread.join(deadline - time.monotonic())

    def request_finished(self, event: RequestRecord) -> None:
        """Take one request, if it is sampled."""
        thread, trace = self._thread, event.trace
        if thread is not None and trace is not None and trace.sampled:
            thread.put(event)

    def backend_changed(self, event: BackendChanged) -> None:
        """Nothing that is traced."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Nothing that is traced."""

    def _threads(self) -> list[_SendingThread]:
        return self._ended if self._thread is None else [*self._ended, self._thread]


class _SendingThread:
    """One collector and the thread that sends to it. Both sides count what is dropped, each its own."""

    def __init__(
        self,
        way_to: Callable[[TracingOptions], Way],
        options: TracingOptions,
        most: int,
        batch_seconds: float,
    ) -> None:
        self.sent = 0
        self._way_to = way_to
        self._options = options
        self._most = most
        self._batch_seconds = batch_seconds
        self._requests: SimpleQueue[RequestRecord] = SimpleQueue()
        self._wake = Event()
        self._finishing = False
        self._given_up = False
        self._refused = self._unsent = 0
        self._way: Way | None = None
        self._failing = False
        self._thread = Thread(target=self._run, name="span-sender", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._unsent

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def put(self, request: RequestRecord) -> None:
        waiting = self._requests.qsize()
        if waiting >= self._most:
            self._refused += 1 + (0 if request.trace is None else len(request.trace.attempts))
            return
        self._requests.put(request)
        if waiting == _WAKE_AT:  # else it comes by itself: a thread that is woken by each request costs more
            self._wake.set()

    def finish(self) -> None:
        self._finishing = True
        self._wake.set()
        if self._failing:
            self._hurry()  # what is left gets one chance, not one of ten seconds for each batch

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread; when it takes longer, have it give up what it is at."""
        self._thread.join(max(0.0, timeout_seconds))
        if self._thread.is_alive():
            self._given_up = True
            self._hurry()
            self._thread.join(_HURRIED_SECONDS)

    def _hurry(self) -> None:
        if self._way is not None:
            self._way.hurry()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:
            logger.exception("sending spans failed in the router; none are sent any more")

    def _serve(self) -> None:
        way = self._way = self._way_to(self._options)
        logger.info("sending spans to %s", self._options.endpoint)
        finishing = False
        while not finishing:
            self._wake.wait(self._batch_seconds)
            self._wake.clear()
            finishing = self._finishing  # before the queue is looked at: nothing comes after it was set
            while batch := self._batch():
                self._send(way, batch)
        way.close()

    def _batch(self) -> list[Span]:
        batch: list[Span] = []
        for _ in range(BATCH_REQUESTS):
            try:
                batch += spans_of(self._requests.get_nowait(), self._options.scheme)
            except Empty:
                break
        return batch

    def _send(self, way: Way, batch: list[Span]) -> None:
        lost, why = (len(batch), "the router stops") if self._given_up else way.send(batch)
        self.sent += len(batch) - lost
        self._unsent += lost
        if bool(lost) is not self._failing:
            self._failing = bool(lost)
            if lost:
                message = "%s takes no spans, they are lost: %s; not said again until it does"
                logger.warning(message, self._options.endpoint, why)
            else:
                logger.info("%s takes spans again; %d were lost", self._options.endpoint, self.dropped)
        time.sleep(_BREATH_SECONDS)  # lets the event loop have the interpreter's lock
