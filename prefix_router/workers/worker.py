"""One worker process: a data port, and a line to the pool.

It has no admin listener, asks no backend how it is and holds no state of its own that another worker would
miss: the fleet comes from the pool, leases are counted in shared memory, what happens to requests is
reported, and what its strategy learns by is in the journal.

It obeys the pool alone. Signals are ignored, since a terminal or a service manager sends them to all
processes of a group, and the pool is one of them. When the pool is gone the worker drains and exits, because
nobody would tell it any more which backends live.

Run as `python -m prefix_router.workers.worker CONTROL COUNTS`, both numbers of inherited descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress

import uvloop

from prefix_router.build import policy_of
from prefix_router.data_port import DataPort
from prefix_router.garbage import spare_what_lives_on
from prefix_router.observe.fanout import Fanout
from prefix_router.observe.logs import AccessLog, Logs, configure, set_level
from prefix_router.proxy.tasks import TaskGroup
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.settings.model import Settings
from prefix_router.shutdown import stop_unless_hurried
from prefix_router.tls import TlsFileError
from prefix_router.tokenization import TokenizerError
from prefix_router.workers.journal import Journal
from prefix_router.workers.link import PoolLink
from prefix_router.workers.messages import Begin, Confirmed, Failed, FleetView, Ready, Reconfigure, Stop
from prefix_router.workers.replica import FleetReplica
from prefix_router.workers.shared_counts import SharedCounts
from prefix_router.workers.sharing import Sharing

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
_FAREWELL_SECONDS = 1.0


class Worker:
    """What one worker consists of. `start` it, `stop` it; not reusable."""

    def __init__(self, begin: Begin, counts_descriptor: int, link: PoolLink) -> None:
        """Build the parts; nothing listens. Raises TokenizerError, TlsFileError, OSError."""
        self._settings = begin.settings
        self._link = link
        self._listeners = begin.listeners
        counts = SharedCounts(counts_descriptor, begin.settings.workers, bells=begin.bells)
        self._bell = begin.bells[begin.process - 1]
        self._replica = FleetReplica(begin.fleet, counts, begin.process, link.reporter.add_evidence)
        policy = policy_of(begin.settings)
        self._sharing = Sharing(Journal(begin.journal, begin.settings.workers), begin.process)
        self._sharing.share(policy.decider.strategy)
        self._upstreams = Upstreams(policy.timeouts, policy.backend_tls)
        self._access_log = AccessLog(requests=begin.settings.logging.access)
        self._data = DataPort(
            begin.settings,
            policy,
            store=self._replica,
            upstreams=self._upstreams,
            observer=Fanout([link.reporter, self._access_log]),
            refresh_models=link.refresh_models,
            clock=time.monotonic,
            continuations=link.continuations,
            among_others=True,
        )
        self._tasks = TaskGroup()
        link.busy = lambda: (self._data.active, self._data.waiting)

    async def start(self) -> None:
        """Accept connections. Raises OSError."""
        await self._data.start([socket.socket(fileno=descriptor) for descriptor in self._listeners])
        asyncio.get_running_loop().add_reader(self._bell, self._rung)
        self._tasks.start("take over changes", self._take_over_changes())
        self._tasks.start("heartbeat", self._beat())
        self._tasks.start("follow the other workers", self._sharing.follow())
        self._link.channel.send(Ready())

    async def run(self) -> None:
        """Serve until the pool says stop or is gone."""
        told = await self._link.stopping
        if told is None:
            told = Stop(self._settings.timeouts.shutdown_grace_seconds, 0)
        await stop_unless_hurried(self._data.stop, told.grace_seconds, told.delay_seconds, self._link.hurry)
        await self._tasks.stop()
        asyncio.get_running_loop().remove_reader(self._bell)
        self._upstreams.close()
        self._link.reporter.flush()

    def _rung(self) -> None:
        """Another process has freed what somebody here waits for."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self._data.look_again()

    async def _take_over_changes(self) -> None:
        """Put fleets and settings in force in the order in which they were published."""
        changes, changed = self._link.changes, self._link.changed
        while True:
            await changed.wait()
            changed.clear()
            while changes:
                await self._take_over(changes.popleft())

    async def _take_over(self, change: FleetView | Reconfigure) -> None:
        view = change if isinstance(change, FleetView) else change.fleet
        ring = self._replica.fleet.ring
        if self._replica.needs_ring(view):
            ring = await asyncio.to_thread(self._replica.ring_of, view)
        policy = self._data.policy
        if isinstance(change, Reconfigure):
            try:
                policy = await asyncio.to_thread(policy_of, change.settings, policy)
            except (TokenizerError, TlsFileError) as error:  # the pool could read it a moment ago
                logger.error("requests are still read by the old settings: %s", error)
        # From here on without an await: no request may see the new fleet with the old settings.
        self._replica.put_in_place(view, ring)
        if isinstance(change, Reconfigure):
            self._sharing.share(policy.decider.strategy)
            backends = [member.backend for member in view.members]
            self._data.put_in_force(change.settings, backends, policy)
            self._access_log.requests = change.settings.logging.access
            set_level(change.settings.logging.level.value)
            self._settings = change.settings
            await self._data.settled()
        self._link.channel.send(Confirmed(view.version))

    async def _beat(self) -> None:
        """Let the pool know that the event loop turns, and how many requests run."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self._link.reporter.flush()


async def serve(control: socket.socket, counts_descriptor: int) -> int:
    """Be a worker until told otherwise; return the exit status."""
    link = PoolLink()
    await link.channel.open(control)
    begin = await link.begun
    if begin is None:
        return 0
    logs = _logs(begin.settings)
    try:
        worker = Worker(begin, counts_descriptor, link)
        await worker.start()
        spare_what_lives_on()
        await worker.run()
    except (OSError, TokenizerError, TlsFileError) as error:
        link.channel.send(Failed(str(error)))
        return 1
    finally:
        await link.channel.flushed(_FAREWELL_SECONDS)
        await asyncio.to_thread(logs.shutdown)
    return 0


def _logs(settings: Settings) -> Logs:
    return configure(settings.logging.level.value, settings.logging.format.value)


def main(arguments: list[str]) -> int:
    """Run a worker on inherited descriptors."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control, counts = map(int, arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(socket.socket(fileno=control), counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
