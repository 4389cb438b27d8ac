"""A worker's reports to the pool: requests that ended, and what they showed about backends.

Reports go in batches, so that the pool wakes some twenty times a second and not for each request; evidence
that may change a backend's state goes at once. Good evidence about a backend that is healthy anyway is
repeated only after bad evidence, so it costs one entry per batch and backend, not one per request.

Bounded: while the pool does not read, some thousand events are kept and further ones are counted as lost. The
worker goes on serving; its numbers are then too low, and the log of the pool says by how many requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from prefix_router.routing.health import HealthEvent
from prefix_router.workers.messages import Evidence, Report

if TYPE_CHECKING:
    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord

BATCH_SECONDS = 0.05
BATCH_EVENTS = 256
MAX_KEPT_EVENTS = 8192
MAX_KEPT_EVIDENCE = 1024


class Reporter:
    """Collects and sends. An `Observer`; of its events only finished requests occur in a worker."""

    def __init__(self, send: Callable[[Report], bool], busy: Callable[[], tuple[int, int]]) -> None:
        """`send` says whether the report was taken; `busy` counts requests that run, and those that wait."""
        self._send = send
        self._busy = busy
        self._finished: list[RequestRecord] = []
        self._evidence: list[Evidence] = []
        self._last: dict[str, HealthEvent] = {}
        self._lost = 0
        self._timer: asyncio.Handle | None = None

    def request_finished(self, event: RequestRecord) -> None:
        """Report one finished request, soon."""
        if len(self._finished) >= MAX_KEPT_EVENTS:
            self._lost += 1
            return
        self._finished.append(event)
        if len(self._finished) == BATCH_EVENTS:
            self.flush()
        else:
            self._flush_soon()

    def backend_changed(self, event: BackendChanged) -> None:
        """Does not happen here: the pool keeps the states."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Does not happen here: the pool asks the engines."""

    def add_evidence(self, evidence: Evidence, urgent: bool) -> None:
        """Report what a request showed about a backend: at once if `urgent`, soon otherwise."""
        repeated = self._last.get(evidence.name) is evidence.event
        if evidence.event is HealthEvent.REQUEST_OK and repeated and not urgent:
            return
        if len(self._evidence) >= MAX_KEPT_EVIDENCE:
            del self._evidence[0]
        self._last[evidence.name] = evidence.event
        self._evidence.append(evidence)
        if urgent:
            self.flush()
        else:
            self._flush_soon()

    def flush(self, answers: int | None = None) -> None:
        """Send what there is, and the number of running requests. `answers`: as in `Report`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        report = Report(*self._busy(), self._finished, self._evidence, self._lost, answers)
        if self._send(report):
            self._finished, self._evidence, self._lost = [], [], 0
            self._last.clear()

    def _flush_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self.flush)
