"""The composition root: builds the parts from the settings, starts them, drains and stops them.

The order of starting is the order of need: fleet, probes, admin listener, data port. Stopping goes the other
way round: not ready, no new connections, running requests finish within their grace, then everything is
cut. A second signal cuts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import sys
import time
from typing import Any

import uvloop
from aiohttp import web

from prefix_router import __version__
from prefix_router.admin.listener import AdminSources, admin_application
from prefix_router.admin.status import status_document
from prefix_router.build import backends_of, decider_of
from prefix_router.explain import explanation_document
from prefix_router.observe.fanout import Fanout
from prefix_router.observe.logs import AccessLog, configure
from prefix_router.observe.metrics import Metrics
from prefix_router.observe.totals import Totals
from prefix_router.proxy.dispatch import Dispatcher
from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.front_door import FrontDoor
from prefix_router.proxy.handler import Handler, RequestLimits
from prefix_router.proxy.local_answers import LocalAnswers
from prefix_router.proxy.probes import ProbeOptions, Prober
from prefix_router.proxy.replies import Replies
from prefix_router.proxy.tasks import TaskGroup
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.routing.health import HealthPolicy
from prefix_router.settings.model import Settings
from prefix_router.tokenization import TokenizerError
from prefix_router.upstream.pool import Timeouts

logger = logging.getLogger(__name__)

_CUT_SECONDS = 0.05
"""How long connections that are being cut may take to notice."""


class Router:
    """A whole router in the running event loop. `start` it, `stop` it; not reusable."""

    def __init__(self, settings: Settings) -> None:
        """Build the parts; nothing listens and nobody is asked yet. Raises TokenizerError."""
        self._settings = settings
        # Not loop.time: uvloop counts in whole milliseconds.
        self._clock = time.monotonic
        self._started_at = self._clock()
        backends = backends_of(settings)
        self.totals = Totals()
        self.metrics = Metrics(self._in_flight)
        observer = Fanout([self.metrics, self.totals, AccessLog(requests=settings.logging.access)])
        health = settings.health
        self.store = FleetStore(
            backends,
            virtual_nodes=settings.routing.ring.virtual_nodes,
            policy=HealthPolicy(
                health.probe_failures,
                health.request_failures,
                health.cooldown_seconds,
                health.recovery_successes,
                health.max_ejected_fraction,
            ),
            observer=observer,
            clock=self._clock,
        )
        self.metrics.set_backends([backend.name for backend in backends])
        timeouts = settings.timeouts
        self._upstreams = Upstreams(
            Timeouts(
                timeouts.connect_seconds,
                timeouts.first_byte_seconds,
                timeouts.idle_seconds,
                timeouts.upstream_keepalive_seconds,
            )
        )
        self._prober = Prober(
            self.store,
            self._upstreams,
            observer,
            ProbeOptions(
                health.path,
                health.interval_seconds,
                health.timeout_seconds,
                settings.models.refresh_seconds,
                settings.engine_metrics.path,
                settings.engine_metrics.interval_seconds,
            ),
        )
        self._decider = decider_of(settings)
        replies = Replies(decision_headers=settings.response_headers.decision)
        self.handler = Handler(
            store=self.store,
            decider=self._decider,
            dispatcher=Dispatcher(
                store=self.store,
                upstreams=self._upstreams,
                strategy=self._decider.strategy,
                replies=replies,
                max_attempts=settings.retry.max_attempts,
                clock=self._clock,
            ),
            replies=replies,
            local_answers=LocalAnswers(self.store, self._prober.refresh_models),
            observer=observer,
            limits=RequestLimits(
                settings.limits.max_body_bytes, timeouts.idle_seconds, timeouts.client_write_seconds
            ),
            clock=self._clock,
        )
        self._front_door = FrontDoor(
            self.handler,
            keepalive_seconds=timeouts.client_keepalive_seconds,
            max_header_bytes=settings.limits.max_header_bytes,
        )
        self._tasks = TaskGroup()
        self._data_server: asyncio.Server | None = None
        self._admin: web.AppRunner | None = None
        self.port = settings.listen.port
        self.admin_port = settings.admin.port

    async def start(self) -> None:
        """Start probing and listen. Raises OSError when a port cannot be had; nothing is left then."""
        settings = self._settings
        try:
            self._admin = web.AppRunner(admin_application(self._admin_sources()), access_log=None)
            await self._admin.setup()
            site = web.TCPSite(self._admin, settings.admin.host, settings.admin.port)
            await site.start()
            self.admin_port = self._admin.addresses[0][1]
            self._data_server = await asyncio.get_running_loop().create_server(
                self._front_door, settings.listen.host, settings.listen.port, backlog=settings.listen.backlog
            )
            self.port = self._data_server.sockets[0].getsockname()[1]
        except OSError:
            await self.stop(grace_seconds=0)
            raise
        self._tasks.start("watch clients", self._front_door.watch())
        self._prober.sync(member.backend for member in self.store.fleet.members)

    async def stop(self, grace_seconds: float) -> None:
        """Take no new connections, let running requests end within `grace_seconds`, then cut the rest."""
        self.handler.closing = True
        if self._data_server is not None:
            self._data_server.close()
        deadline = self._clock() + grace_seconds
        await self.handler.drained(grace_seconds)
        await self._front_door.flushed(deadline - self._clock())
        self._front_door.pre_shutdown()
        await self._front_door.shutdown(_CUT_SECONDS)
        await self.handler.drained(_CUT_SECONDS)
        await self._prober.stop()
        await self._tasks.stop()
        self._upstreams.close()
        if self._admin is not None:
            await self._admin.cleanup()

    def not_ready(self) -> str | None:
        """Say why traffic should not come here, None when it may."""
        if self.handler.closing:
            return "shutting down"
        if not self._prober.first_round_done:
            return "backends have not all been asked yet"
        if not self.store.fleet.routable(None):
            return "no backend can take a request"
        return None

    def status(self) -> dict[str, Any]:
        """Return the `/status` document."""
        return status_document(
            self.store.fleet,
            self.totals,
            version=__version__,
            strategy=self._decider.strategy.name,
            uptime_seconds=self._clock() - self._started_at,
            active_requests=self.handler.active,
        )

    def _admin_sources(self) -> AdminSources:
        threshold = self._settings.routing.concurrency_threshold
        return AdminSources(
            not_ready=self.not_ready,
            render_metrics=self.metrics.render,
            status=self.status,
            explain=lambda body, path, headers: explanation_document(
                self._decider, self.store.fleet, threshold, body, path, headers
            ),
        )

    def _in_flight(self) -> dict[str, int]:
        return {member.name: member.in_flight.count for member in self.store.fleet.members}


def serve(settings: Settings) -> int:
    """Run a router until it is told to stop; return the exit status."""
    _raise_file_limit()
    logs = configure(settings.logging.level.value, settings.logging.format.value)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    finally:
        logs.shutdown()


def _raise_file_limit() -> None:
    """Each request costs two sockets; the usual soft limit of 1,024 is there for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    hurry = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled(name: str) -> None:
        logger.info("%s: %s", name, "stopping at once" if stop.is_set() else "draining")
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number.name)
    began = time.monotonic()
    try:
        router = Router(settings)
        await router.start()
    except TokenizerError as error:
        print(f"prefix-router: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"prefix-router: cannot listen: {error.strerror or error}", file=sys.stderr)
        return 1
    logger.info(
        "prefix-router %s: %d backends, strategy %s, data on %s:%d, admin on %s:%d, ready in %.0f ms",
        __version__,
        len(settings.backends),
        settings.routing.strategy.value,
        settings.listen.host,
        router.port,
        settings.admin.host,
        router.admin_port,
        (time.monotonic() - began) * 1000,
    )
    await stop.wait()
    stopping = asyncio.ensure_future(router.stop(settings.timeouts.shutdown_grace_seconds))
    hurrying = asyncio.ensure_future(hurry.wait())
    await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if not stopping.done():
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await router.stop(grace_seconds=0)
    else:
        stopping.result()
    return 0
