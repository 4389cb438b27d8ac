"""The pool: owns the worker processes, tells them all the same, and adds up what they report.

The router's own process keeps everything there must be one of: the fleet and its health, the probes, the
admin listener, the metrics. It serves no client, so no load of clients can keep it from answering a probe.
Workers do the opposite. What goes where:

    pool → worker    whole fleets (health, models, drains), settings, stop
    worker → pool    requests that ended, evidence about backends, which backend made which response
    both             in-flight counts, in shared memory
    worker → worker  what was sent where, in shared memory, for a strategy that learns from it

A worker that dies is replaced at once, and after longer and longer pauses if its successors die young. What
it had reported stays counted, what it held is given back. A worker that has not said anything for half a
minute has an event loop that stands still: it is killed, and then it is one that died.

All of this is bounded and nothing waits for a worker without a limit. docs/workers.md is for operators,
docs/decisions/0005-workers.md says why it is built this way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from socket import socket
from typing import Any

from prefix_router.observe.events import Observer
from prefix_router.proxy.continuations import Continuations
from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.policy import RequestPolicy
from prefix_router.proxy.tasks import TaskGroup
from prefix_router.routing.fleet import Backend
from prefix_router.settings.model import Settings
from prefix_router.workers.journal import Journal
from prefix_router.workers.listeners import Listeners
from prefix_router.workers.messages import (
    Begin,
    Confirmed,
    Continues,
    Failed,
    FleetView,
    MemberView,
    ModelsRefreshed,
    Ready,
    Recall,
    Reconfigure,
    RefreshModels,
    Remember,
    Report,
    Stop,
    Tell,
    ToPool,
    ToWorker,
)
from prefix_router.workers.process import WorkerProcess
from prefix_router.workers.shared_counts import SharedInFlight
from prefix_router.workers.slots import BackendSlots

logger = logging.getLogger(__name__)

COLLECT_SECONDS = 0.5
"""How long a scrape waits for a worker; of one that is slower the last report counts."""

SETTLE_SECONDS = 10.0
TICK_SECONDS = 1.0
SILENT_TICKS = 30
"""Ticks, not seconds: a pool that was itself asleep does not take that for the silence of others."""

STARTING_TICKS = 300
"""The same before a worker is ready: many that start on few cores take their time."""

STABLE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_END_SECONDS = 5.0
"""How long a worker may take to exit, once its grace is over."""


class WorkerPool:
    """Serves clients in `settings.workers` processes. A `DataSide`."""

    def __init__(
        self,
        settings: Settings,
        *,
        slots: BackendSlots,
        store: FleetStore,
        observer: Observer,
        refresh_models: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        """`store` must take its counters from `slots`; `observer` gets the events of all workers.

        Raises OSError when there is no shared memory.
        """
        self._settings = settings
        self._slots = slots
        self._journal = Journal.create(settings.workers)
        self._store = store
        self._observer = observer
        self._refresh_models = refresh_models
        self._clock = clock
        self._continuations = Continuations()
        self._listeners: Listeners | None = None
        self._sockets: dict[int, list[socket]] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._first_ready: dict[int, asyncio.Future[None]] = {}
        self._tasks = TaskGroup()
        self._changed = asyncio.Event()
        """Set whenever a worker has said something that somebody may wait for."""
        self._publishing: asyncio.Handle | None = None
        self._version = 0
        self._last_tell = 0
        self.closing = False
        self.restarts = 0
        self.port = settings.listen.port
        store.follow(self._fleet_changed)

    @property
    def active(self) -> int:
        """Requests that run in all workers, as they last said; a worker says it at least once a second."""
        return sum(worker.active for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        """Requests, of those that run, that wait for a free backend."""
        return sum(worker.waiting for worker in self._workers.values())

    @property
    def processes(self) -> int:
        """Workers that accept connections."""
        return sum(worker.ready for worker in self._workers.values())

    async def start(self) -> None:
        """Bind the port and start all workers. Raises OSError when one of them cannot; none is left then."""
        listen = self._settings.listen
        self._listeners = await Listeners.reserve(listen.host, listen.port)
        self.port = self._listeners.port
        numbers = range(1, self._settings.workers + 1)
        self._first_ready = {number: asyncio.get_running_loop().create_future() for number in numbers}
        for number in numbers:
            self._tasks.start(f"worker:{number}", self._keep(number))
        self._tasks.start("watch workers", self._watch())
        try:
            await asyncio.gather(*self._first_ready.values())
        except OSError:
            await self.stop(0)
            raise

    async def stop(self, grace_seconds: float, delay_seconds: float = 0) -> None:
        """Have all workers drain, then end those that are left. May be cancelled, and called to hurry."""
        self.closing = True
        self._close_sockets()
        workers = list(self._workers.values())
        for worker in workers:
            worker.send(Stop(grace_seconds, delay_seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_seconds + grace_seconds + _END_SECONDS):
                await self._until(lambda: not self._workers)
        for worker in self._workers.values():
            logger.error("worker %d does not stop: killed", worker.number)
            worker.kill()
        await self._until(lambda: not self._workers)
        await self._tasks.stop()
        if self._listeners is not None:
            self._listeners.close()
        self._slots.counts.close()
        self._journal.close()

    def put_in_force(self, settings: Settings, backends: Iterable[Backend], policy: RequestPolicy) -> None:
        """Have the next request served by these settings, together with the fleet as it is now."""
        self._settings = settings
        view = self._next_view()
        self._send_all(Reconfigure(settings, view))

    async def settled(self) -> None:
        """Wait until every worker has taken over the newest fleet and settings. Bounded."""
        version = self._version
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._until(
                    lambda: all(worker.confirmed >= version for worker in self._workers.values())
                )
                return
        logger.warning("some workers have not taken over the new settings within %g s", SETTLE_SECONDS)

    async def collect(self) -> None:
        """Have every worker report now. Bounded."""
        self._last_tell = number = self._last_tell + 1
        asked = [worker for worker in self._workers.values() if worker.ready and worker.send(Tell(number))]
        with suppress(TimeoutError):
            async with asyncio.timeout(COLLECT_SECONDS):
                await self._until(
                    lambda: all(worker.answered >= number or not worker.ready for worker in asked)
                )

    def document(self) -> dict[str, Any]:
        """Return what `/status` says of the workers."""
        workers = [worker.document() for _, worker in sorted(self._workers.items())]
        return {"workers": workers, "worker_restarts": self.restarts}

    async def _keep(self, number: int) -> None:
        """Have one worker, and another one when it dies, until the pool closes."""
        died_young = 0
        while True:
            worker = WorkerProcess(number, self._received)
            began = self._clock()
            ending = await self._live(worker)
            held = self._slots.counts.reclaim(number)
            self._journal.reclaim(number, self._clock())
            del self._workers[number]
            self._confirmed()
            self._changed.set()
            first_ready = self._first_ready[number]
            if not first_ready.done():
                cause = worker.failure or f"it {ending}"
                first_ready.set_exception(OSError(f"worker {number} cannot start: {cause}"))
                return
            if self.closing:
                return
            died_young = 0 if self._clock() - began >= STABLE_SECONDS else died_young + 1
            pause = _pause(died_young)
            self.restarts += 1
            logger.error(
                "worker %d (process %s) %s%s; %d requests were lost; another one starts %s",
                number,
                worker.pid,
                ending,
                f" ({worker.failure})" if worker.failure else "",
                held,
                f"in {pause:g} s" if pause else "now",
            )
            if pause:
                self._close_sockets(number)  # so that the other workers get its connections meanwhile
                await asyncio.sleep(pause)

    async def _live(self, worker: WorkerProcess) -> str:
        """Start a worker and wait for its end; return how it ended, in words."""
        assert self._listeners is not None
        number = worker.number
        self._workers[number] = worker
        try:
            if number not in self._sockets:
                self._sockets[number] = self._listeners.sockets()
            listeners = [sock.fileno() for sock in self._sockets[number]]
            counts = self._slots.counts
            journal = self._journal.descriptor
            await worker.start(counts.descriptor, [*counts.bells, journal, *listeners])
        except OSError as error:
            worker.failure = str(error)
            return "could not be started"
        worker.begin(Begin(self._settings, number, counts.bells, journal, tuple(listeners), self._view()))
        if self.closing:
            worker.send(Stop(0, 0))
        return await worker.ended()

    async def _watch(self) -> None:
        """Kill who has been silent for too long."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for worker in self._workers.values():
                if worker.tick() == (SILENT_TICKS if worker.ready else STARTING_TICKS):
                    logger.error("worker %d has not said anything for long: killed", worker.number)
                    worker.kill()

    def _received(self, worker: WorkerProcess, message: ToPool) -> None:
        match message:
            case Report():
                self._take(worker, message)
            case Remember():
                self._continuations.remember(message.response_id, message.backend)
            case Recall(response_id=response_id):
                worker.send(Continues(response_id, self._continuations.backend(response_id)))
            case RefreshModels():
                self._tasks.start("refresh models", self._refresh_models_for(worker))
            case Confirmed():
                worker.confirmed = message.version
                self._confirmed()
            case Ready():
                worker.ready = True
                if not self._first_ready[worker.number].done():
                    self._first_ready[worker.number].set_result(None)
            case Failed():
                worker.failure = message.cause
        self._changed.set()

    def _take(self, worker: WorkerProcess, report: Report) -> None:
        worker.active, worker.waiting = report.active, report.waiting
        worker.answered = report.answers or worker.answered
        if report.lost:
            logger.error(
                "worker %d could not report %d requests: they count nowhere", worker.number, report.lost
            )
        for event in report.finished:
            self._observer.request_finished(event)
        for evidence in report.evidence:
            member = self._store.fleet.by_name.get(evidence.name)
            if member is not None and member.backend.url == evidence.url:
                self._store.report(member.backend, evidence.event, evidence.cause, evidence.suspect)

    async def _refresh_models_for(self, worker: WorkerProcess) -> None:
        await self._refresh_models()
        if self._publishing is not None:
            self._publish()
        worker.send(ModelsRefreshed())

    def _fleet_changed(self) -> None:
        """Publish soon: several changes in one turn of the event loop are one fleet."""
        if self._publishing is None and self._workers:
            self._publishing = asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        self._send_all(self._next_view())

    def _next_view(self) -> FleetView:
        if self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None
        self._version += 1
        view = self._view()
        self._slots.published(view.version, (member.slot for member in view.members))
        return view

    def _view(self) -> FleetView:
        fleet = self._store.fleet
        return FleetView(
            self._version,
            fleet.ring.virtual_nodes,
            tuple(
                MemberView(
                    member.backend,
                    self._store.models(member.name),
                    member.state,
                    member.draining,
                    _slot(member.in_flight),
                )
                for member in fleet.members
            ),
        )

    def _confirmed(self) -> None:
        versions = [worker.confirmed for worker in self._workers.values()]
        self._slots.confirmed(min(versions, default=self._version))

    def _send_all(self, message: ToWorker) -> None:
        for worker in self._workers.values():
            worker.send(message)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _close_sockets(self, number: int | None = None) -> None:
        """Close this process's copies of the sockets of one worker, or of all."""
        for owner in [number] if number is not None else list(self._sockets):
            for sock in self._sockets.pop(owner, ()):
                sock.close()


def _pause(died_young: int) -> float:
    """How long to wait before the next start, after so many workers in a row that did not live long."""
    if died_young <= 1:
        return 0
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** (died_young - 2), _LONGEST_PAUSE_SECONDS)


def _slot(in_flight: object) -> int:
    assert isinstance(in_flight, SharedInFlight)
    return in_flight.slot
