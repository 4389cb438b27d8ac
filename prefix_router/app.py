"""The composition root: builds the parts from the settings, starts them, changes, drains and stops them.

The order of starting is the order of need: fleet, probes, admin listener, data port. Stopping goes the other
way round: not ready, no new connections, running requests finish within their grace (`shutdown`), then
everything is cut.

A reload builds what takes time or can fail aside, in a thread, and then puts all of it in place without an
await between: no request sees the new fleet with the old policy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from aiohttp import web

from prefix_router import __version__
from prefix_router.admin.control import Controls, Reply
from prefix_router.admin.guard import Access, Guard
from prefix_router.admin.listener import AdminSources, admin_application
from prefix_router.admin.page import PageSources
from prefix_router.admin.status import backend_document, source_document, status_document
from prefix_router.build import (
    backends_of,
    capture_options_of,
    health_policy_of,
    listener_tls_of,
    policy_of,
    probe_options_of,
    tracing_options_of,
)
from prefix_router.configuration_watch import ConfigurationWatch
from prefix_router.data_port import DataPort, DataSide
from prefix_router.discovery.discovery import Discovery
from prefix_router.discovery.file_watch import SeenFile
from prefix_router.discovery.merge import Clash
from prefix_router.explain import explanation_document
from prefix_router.found_backends import discovery_options_of, with_found
from prefix_router.listening import Listening
from prefix_router.observe.capture import Capture
from prefix_router.observe.cold_warning import ColdWarning
from prefix_router.observe.events import BackendChanged, Observer
from prefix_router.observe.fanout import Fanout
from prefix_router.observe.history import History
from prefix_router.observe.hot_keys import HotKeys
from prefix_router.observe.logs import AccessLog, set_level
from prefix_router.observe.metrics import Metrics
from prefix_router.observe.startup import Startups
from prefix_router.observe.totals import Totals
from prefix_router.observe.tracing import SpanSender
from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.policy import RequestPolicy
from prefix_router.proxy.probes import Prober
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.reloader import Reloader, ReloadRefusedError
from prefix_router.routing.fleet import Backend, BackendName, BackendState, InFlight
from prefix_router.routing.ring import Ring
from prefix_router.settings.joining import WarmUpName
from prefix_router.settings.model import Settings, StrategyName
from prefix_router.settings.reload import ReloadReport, changes, compare
from prefix_router.settings.secrets import shown
from prefix_router.tls_notes import note
from prefix_router.tokenization import TokenizerError

if TYPE_CHECKING:
    from prefix_router.workers.slots import BackendSlots

logger = logging.getLogger(__name__)


class Router:
    """A whole router in the running event loop. `start` it, `stop` it; not reusable."""

    def __init__(
        self,
        settings: Settings,
        read_again: Callable[[], Settings] | None = None,
        file: SeenFile | None = None,
    ) -> None:
        """Build the parts; nothing listens and nobody is asked yet. Raises TokenizerError, TlsFileError.

        read_again: reads the settings anew for a reload, blocking; None when there is no file to read. file:
        as it was before it was read, for `reload.watch`.
        """
        self.settings = settings
        self._served = settings
        """The same, with the backends that were found."""
        self._clashes: frozenset[Clash] = frozenset()
        # Not loop.time: uvloop counts in whole milliseconds.
        self._clock = time.monotonic
        self._started_at = self._clock()
        backends = backends_of(settings)
        self.policy = policy_of(settings)
        self._slots = _shared_slots(settings)
        self.totals = Totals()
        self._history = History(self._clock)
        self._hot_keys = HotKeys(self._clock)
        self._capture = Capture()
        self._spans = SpanSender()
        self._startups = Startups(self._clock)
        self.metrics = Metrics(
            self._in_flight,
            self._draining,
            active_requests=lambda: self.active,
            waiting=lambda: self._data.waiting,
            workers=lambda: (self._data.processes, self._data.restarts),
            capture_dropped=lambda: self._capture.dropped,
            spans=lambda: (self._spans.sent, self._spans.dropped),
            key_shares=lambda: self.store.fleet.ring.shares,
            discovery=lambda: self._discovery.statuses,
            startups=self._startups.seconds,
        )
        self._access_log = AccessLog(requests=settings.logging.access)
        observer = self._observer = Fanout(
            [self.metrics, self.totals, self._history, self._hot_keys, self._access_log]
        )
        self._cold_warning = ColdWarning(self._clock)
        self._warn_by(settings)
        self.store = FleetStore(
            backends,
            virtual_nodes=settings.routing.ring.virtual_nodes,
            policy=health_policy_of(settings),
            observer=observer,
            clock=self._clock,
            in_flight=InFlight if self._slots is None else self._slots.in_flight,
        )
        self._count_only([backend.name for backend in backends])
        self._upstreams = Upstreams(self.policy.timeouts, self.policy.backend_tls)
        self.prober = Prober(
            self.store, self._upstreams, observer, probe_options_of(settings), self._startups
        )
        self._data = self._data_side(observer)
        self._reloading = asyncio.Lock()
        self._reloader = Reloader(read_again, self.reload, self.metrics)
        self._watch = ConfigurationWatch(file, self.reload_file)
        self._discovery = Discovery(discovery_options_of(settings), self._take_found)
        self._guard = Guard(_access(settings), self._clock, self.metrics.admin_refused)
        self._admin: web.AppRunner | None = None
        self._admin_listening: Listening | None = None
        self._admin_tls = listener_tls_of("admin.tls", settings.admin.tls)
        self._note_tls()
        self.port = settings.listen.port
        self.admin_port = settings.admin.port

    async def start(self) -> None:
        """Start probing and listen.

        Raises OSError when a port cannot be had, and TokenizerError for an unusable chat template; nothing is
        left then.
        """
        settings = self.settings
        try:
            application = admin_application(self._admin_sources(), self._guard)
            self._admin = web.AppRunner(application, access_log=None)
            await self._admin.setup()
            assert self._admin.server is not None
            self._admin_listening = Listening(self._admin.server, self._admin_tls)
            await self._admin_listening.open(settings.admin.host, settings.admin.port)
            self.admin_port = self._admin_listening.port
            self._capture_by(settings)
            self._trace_by(settings)
            await self._data.start()
            self.port = self._data.port
        except (OSError, TokenizerError):
            await self.stop(grace_seconds=0)
            raise
        self.prober.sync(member.backend for member in self.store.fleet.members)
        self._discovery.start()
        self._watch.set_on(settings.reload.watch)

    async def stop(self, grace_seconds: float, delay_seconds: float = 0) -> None:
        """Drain as `shutdown` says, then cut what is left."""
        await self._watch.stop()
        await self._discovery.stop()
        await self._data.stop(grace_seconds, delay_seconds)
        await self.prober.stop()
        self._upstreams.close()
        await asyncio.to_thread(self._capture.close)
        await asyncio.to_thread(self._spans.close)
        if self._admin_listening is not None:
            self._admin_listening.close()
        if self._admin is not None:
            await self._admin.cleanup()

    async def reload(self, settings: Settings) -> ReloadReport:
        """Put new settings in force, as far as a running router can; running requests end under the old ones.

        Raises TokenizerError, TlsFileError and ReloadRefusedError; nothing has changed then.
        """
        async with self._reloading:
            in_force, report = compare(self.settings, settings)
            found = self._discovery.found(discovery_options_of(in_force).sources)
            served, clashes = with_found(in_force, found)
            backends = backends_of(served)
            virtual_nodes = in_force.routing.ring.virtual_nodes
            ring = await asyncio.to_thread(self.store.ring_of, backends, virtual_nodes)
            policy = await asyncio.to_thread(policy_of, served, self.policy)
            admin_tls = await asyncio.to_thread(
                listener_tls_of, "admin.tls", in_force.admin.tls, self._admin_tls
            )
            if self._data.closing:
                raise ReloadRefusedError("the router is shutting down")
            self._serve(served, backends, policy, ring)
            self._put_in_force(in_force, policy)
            self._note_clashes(clashes)
            self._admin_tls = admin_tls
            self._note_tls()
            if self._admin_listening is not None:
                await self._admin_listening.exchange(admin_tls)
            await self._data.settled()
        self.metrics.configuration_reloaded(success=True)
        logger.info("reloaded: %d changes", len(report.applied))
        for change in report.applied:
            logger.info("changed %s", change)
        for change in report.needs_restart:
            logger.warning("needs a restart, the old value stays: %s", change)
        return report

    async def reload_file(self) -> Reply:
        """Read the configuration again and put it in force. Never raises."""
        return await self._reloader()

    def set_draining(self, name: str, draining: bool) -> bool:
        """Send no new requests to a backend, or send some again. Returns False when there is none."""
        known = self.store.set_draining(BackendName(name), draining)
        if known:
            logger.info("backend %s: %s", name, "draining" if draining else "takes requests again")
        return known

    @property
    def active(self) -> int:
        """Requests that run."""
        return self._data.active

    def not_ready(self) -> str | None:
        """Say why traffic should not come here, None when it may."""
        if self._data.closing:
            return "shutting down"
        if not self._discovery.answered:
            return "discovery has not answered yet"
        if not self.prober.first_round_done:
            return "backends have not all been asked yet"
        if not self._data.processes:
            return "no worker takes connections"
        if not self.store.fleet.in_service():  # a full one is: others wait for it here
            return "no backend can take a request"
        return None

    def status(self) -> dict[str, Any]:
        """Return the `/status` document."""
        document = status_document(
            self.store.fleet,
            self.totals,
            version=__version__,
            strategy=self.policy.decider.strategy.name,
            uptime_seconds=self._clock() - self._started_at,
            active_requests=self.active,
            waiting_requests=self._data.waiting,
            startup=self._startups.document,
        )
        document["concurrency_threshold"] = self.settings.routing.concurrency_threshold
        document["configuration"] = {
            "last_reload_succeeded": self.metrics.last_reload_succeeded,
            "seconds_in_force": round(max(time.time() - self.metrics.configured_at, 0), 3),
        }
        if statuses := self._discovery.statuses:
            document["discovery"] = [source_document(status, time.time()) for status in statuses]
        return {**document, **self._data.document()}

    def _data_side(self, observer: Observer) -> DataSide:
        if self._slots is None:
            return DataPort(
                self.settings,
                self.policy,
                store=self.store,
                upstreams=self._upstreams,
                observer=observer,
                refresh_models=self.prober.refresh_models,
                clock=self._clock,
            )
        from prefix_router.workers.pool import WorkerPool

        return WorkerPool(
            self.settings,
            slots=self._slots,
            store=self.store,
            observer=observer,
            refresh_models=self.prober.refresh_models,
            clock=self._clock,
        )

    async def _take_found(self) -> None:
        """Make the fleet what the sources say, as a difference: who stays keeps everything."""
        async with self._reloading:
            served, clashes = with_found(self.settings, self._discovery.found())
            self._note_clashes(clashes)
            if served == self._served:
                return
            backends = backends_of(served)
            ring = await asyncio.to_thread(self.store.ring_of, backends)
            policy = await asyncio.to_thread(policy_of, served, self.policy)
            if self._data.closing:
                return
            differences = list(changes(self._served, served))
            self._serve(served, backends, policy, ring)
            self._note_tls()
        for change in differences:
            logger.info("found %s", change)

    def _serve(self, settings: Settings, backends: list[Backend], policy: RequestPolicy, ring: Ring) -> None:
        """Change fleet and policy at once. Must never await.

        Raises SlotsExhaustedError with several workers and very many backends; nothing has changed then.
        """
        # Who is there when the first round of probes ends has started with the router; others join it.
        joins = self._discovery.answered and self.prober.first_round_done
        warms_up = joins and settings.joining.warm_up is not WarmUpName.OFF
        joining = BackendState.WARMING if warms_up else BackendState.STARTING
        stay = self.store.replace_backends(
            backends, ring=ring, policy=health_policy_of(settings), joining=joining
        )
        self.policy = policy
        self._served = settings
        self._data.put_in_force(settings, backends, policy)
        self._upstreams.set_tls(policy.backend_tls)
        self.prober.sync(backends, probe_options_of(settings))
        # In two steps: a backend that has only its name in common with another one starts from zero.
        self._count_only(stay)
        self._count_only([backend.name for backend in backends])
        if joins:
            self._note_joining([backend.name for backend in backends if backend.name not in stay], joining)

    def _note_joining(self, names: list[BackendName], state: BackendState) -> None:
        """Begin a record of each start. Without one nobody is even asked for one."""
        self._observer.leave(self._startups)
        self._startups.discovered(names)
        if self._startups.open:
            self._observer.join(self._startups)
        if state is BackendState.WARMING:
            for name in names:
                self._observer.backend_changed(BackendChanged(name, BackendState.STARTING, state, "joins"))

    def _put_in_force(self, settings: Settings, policy: RequestPolicy) -> None:
        """Change everything that is not about requests. Must never await, and nothing here can fail."""
        self._access_log.requests = settings.logging.access
        if settings.logging.level is not self.settings.logging.level:
            set_level(settings.logging.level.value)
        if settings.capture != self.settings.capture:
            self._capture_by(settings)
        if tracing_options_of(settings) != tracing_options_of(self.settings):
            self._trace_by(settings)
        self._warn_by(settings)
        self._guard.access = _access(settings)
        self._discovery.sync(discovery_options_of(settings))
        self._watch.set_on(settings.reload.watch)
        self.settings = settings

    def _capture_by(self, settings: Settings) -> None:
        """Capture as the settings say. Without a capture nobody is even asked for one."""
        self._observer.leave(self._capture)
        options = capture_options_of(settings)
        if options is None:
            self._capture.end()
        else:
            self._capture.begin(options)
            self._observer.join(self._capture)

    def _trace_by(self, settings: Settings) -> None:
        """Send spans where the settings say. Without tracing nobody is even asked for one."""
        self._observer.leave(self._spans)
        options = tracing_options_of(settings)
        if options is None:
            self._spans.end()
        else:
            self._spans.begin(options)
            self._observer.join(self._spans)

    def _warn_by(self, settings: Settings) -> None:
        """Warn of cold backends where the strategy expects something of them; else nobody is even asked."""
        self._observer.leave(self._cold_warning)
        if settings.routing.strategy is StrategyName.ADAPTIVE:
            self._observer.join(self._cold_warning)

    def _note_tls(self) -> None:
        in_use = {
            "listen.tls": self.policy.listener_tls,
            "admin.tls": self._admin_tls,
            "backend_tls": self.policy.backend_tls,
        }
        self.metrics.certificate_ends = note(self.settings, in_use, time.time())

    def _note_clashes(self, clashes: frozenset[Clash]) -> None:
        """Tell each backend that was left out once, for as long as it is."""
        for clash in sorted(clashes - self._clashes, key=str):
            logger.warning("%s", clash)
        self._clashes = clashes

    def _count_only(self, names: Collection[BackendName]) -> None:
        self.metrics.set_backends(names)
        self.totals.set_backends(names)
        self._history.set_backends(names)
        self._hot_keys.set_backends(names)
        self._cold_warning.set_backends(names)
        self._startups.set_backends(names)

    def _admin_sources(self) -> AdminSources:
        return AdminSources(
            not_ready=self.not_ready,
            collect=self._data.collect,
            render_metrics=self.metrics.render,
            status=self.status,
            explain=lambda body, path, headers: explanation_document(
                self.policy.decider,
                self.store.fleet,
                self.settings.routing.concurrency_threshold,
                body,
                path,
                headers,
            ),
            controls=Controls(
                reload=self.reload_file,
                config=lambda: shown(self.settings),
                set_draining=self.set_draining,
                backend=lambda name: backend_document(
                    self.store.fleet.by_name[BackendName(name)],
                    self.totals,
                    self._startups.document(BackendName(name)),
                ),
            ),
            page=PageSources(self._data.collect, self._history.document, self._hot_keys.document),
        )

    def _in_flight(self) -> dict[str, int]:
        return {member.name: member.in_flight.count for member in self.store.fleet.members}

    def _draining(self) -> frozenset[str]:
        return frozenset(member.name for member in self.store.fleet.members if member.draining)


def _access(settings: Settings) -> Access:
    return Access.of(settings.admin.token_sha256, settings.admin.allowed_hosts)


def _shared_slots(settings: Settings) -> BackendSlots | None:
    """Return where several workers count together; None when there is only this process. Raises OSError."""
    if settings.workers == 1:
        return None
    from prefix_router.workers.shared_counts import SharedCounts
    from prefix_router.workers.slots import BackendSlots

    return BackendSlots(SharedCounts.create(settings.workers))
