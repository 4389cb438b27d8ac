"""The data port of one process: it accepts clients, serves them, and comes to rest.

`DataSide` is what the rest of the router knows of it. There are two: `DataPort` here, in the router's own
process, and `workers.pool.WorkerPool`, which has the same done by several processes; in each of them there
is a `DataPort` again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from prefix_router.event_feed import EventFeed
from prefix_router.listening import Listening
from prefix_router.observe.events import Observer
from prefix_router.proxy.continuations import Continuations
from prefix_router.proxy.dispatch import Dispatcher
from prefix_router.proxy.fleet_store import FleetSource
from prefix_router.proxy.front_door import FrontDoor
from prefix_router.proxy.gate import Gate
from prefix_router.proxy.handler import Handler
from prefix_router.proxy.local_answers import LocalAnswers
from prefix_router.proxy.policy import RequestPolicy
from prefix_router.proxy.tasks import TaskGroup
from prefix_router.proxy.upstreams import Upstreams
from prefix_router.routing.fleet import Backend
from prefix_router.routing.retry_budget import RetryBudget
from prefix_router.settings.model import Settings
from prefix_router.shutdown import drain

_CUT_SECONDS = 0.05
"""How long connections that are being cut may take to notice."""


class DataSide(Protocol):
    """Whatever serves clients. `port` is the one that it listens on, once it has started."""

    port: int

    restarts: int
    """Processes that died and were replaced."""

    @property
    def processes(self) -> int:
        """Processes that accept connections."""

    @property
    def active(self) -> int:
        """Requests that run."""

    @property
    def waiting(self) -> int:
        """Requests, of those that run, that wait for a free backend."""

    @property
    def closing(self) -> bool:
        """Whether it has been told to stop."""

    async def start(self) -> None:
        """Accept connections. Raises OSError when that is not possible; nothing is left then."""

    async def stop(self, grace_seconds: float, delay_seconds: float = 0) -> None:
        """Drain as `shutdown` says, then cut what is left. May be cancelled, and called again to hurry."""

    def put_in_force(self, settings: Settings, backends: Iterable[Backend], policy: RequestPolicy) -> None:
        """Serve the next request by these settings, and the policy made of them."""

    async def settled(self) -> None:
        """Wait until what was put in force is in force everywhere. Bounded."""

    async def collect(self) -> None:
        """Bring what is counted elsewhere up to date, before it is shown. Bounded."""

    def document(self) -> dict[str, Any]:
        """Return what `/status` says of it besides the fleet."""


class DataPort:
    """Serves clients in this process."""

    def __init__(
        self,
        settings: Settings,
        policy: RequestPolicy,
        *,
        store: FleetSource,
        upstreams: Upstreams,
        observer: Observer,
        refresh_models: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        continuations: Continuations | None = None,
        among_others: bool = False,
    ) -> None:
        """Build the parts; nothing listens. `refresh_models` asks backends for their models anew, bounded.

        among_others: whether other processes serve the same port and share the places of the backends.
        """
        self._settings = settings
        self._upstreams = upstreams
        self._clock = clock
        self._gate = Gate(store, policy.admission, clock, among_others=among_others)
        self._feed = EventFeed(settings)
        self._retry_budget = RetryBudget(policy.retry_allowance)
        self._handler = Handler(
            store=store,
            policy=policy,
            dispatcher=Dispatcher(
                store=store,
                upstreams=upstreams,
                clock=clock,
                continuations=Continuations() if continuations is None else continuations,
                gate=self._gate,
                retry_budget=self._retry_budget,
            ),
            local_answers=LocalAnswers(store, refresh_models),
            holdings=self._feed,
            observer=observer,
            clock=clock,
        )
        self._front_door = FrontDoor(
            self._handler,
            keepalive_seconds=settings.timeouts.client_keepalive_seconds,
            max_header_bytes=settings.limits.max_header_bytes,
        )
        self._tasks = TaskGroup()
        self._listening = Listening(self._front_door, policy.listener_tls, settings.listen.backlog)
        self._exchanging: asyncio.Task[None] | None = None
        self.port = settings.listen.port
        self.restarts = 0

    @property
    def processes(self) -> int:
        """Processes that accept connections: this one."""
        return 1

    @property
    def active(self) -> int:
        """Requests that run."""
        return self._handler.active

    @property
    def waiting(self) -> int:
        """Requests, of those that run, that wait for a free backend."""
        return self._gate.waiting

    @property
    def closing(self) -> bool:
        """Whether it has been told to stop."""
        return self._handler.closing

    @property
    def policy(self) -> RequestPolicy:
        """What the next request goes by."""
        return self._handler.policy

    async def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        """Accept connections on `sockets`, or on sockets made from the settings.

        Raises OSError, and TokenizerError for a chat template that cannot be used.
        """
        await self._feed.start()
        listen = self._settings.listen
        await self._listening.open(listen.host, listen.port, sockets)
        self.port = self._listening.port
        self._tasks.start("watch clients", self._front_door.watch())

    async def stop(self, grace_seconds: float, delay_seconds: float = 0) -> None:
        """Drain as `shutdown` says, then cut what is left. May be cancelled, and called again to hurry."""
        await drain(
            self._handler,
            self._front_door,
            self._listening.close,
            delay_seconds=delay_seconds,
            grace_seconds=grace_seconds,
            clock=self._clock,
        )
        self._front_door.pre_shutdown()
        await self._front_door.shutdown(_CUT_SECONDS)
        await self._handler.drained(_CUT_SECONDS)
        await self._feed.stop()
        await self._tasks.stop()

    def look_again(self) -> None:
        """Serve who waits, as far as another process has made room."""
        self._gate.look_again()

    def put_in_force(self, settings: Settings, backends: Iterable[Backend], policy: RequestPolicy) -> None:
        """Serve the next request by these settings. Never awaits, cannot fail."""
        self._handler.policy = policy
        self._gate.limits = policy.admission
        self._retry_budget.allowance = policy.retry_allowance
        self._upstreams.set_timeouts(policy.timeouts)
        self._upstreams.set_tls(policy.backend_tls)
        self._upstreams.retain(backends)
        self._front_door.keepalive_seconds = settings.timeouts.client_keepalive_seconds
        self._front_door.max_header_bytes = settings.limits.max_header_bytes
        self._feed.update(settings)
        if policy.listener_tls is not self._listening.tls:
            self._exchanging = self._tasks.start(
                "exchange certificates", self._listening.exchange(policy.listener_tls)
            )

    async def settled(self) -> None:
        """Wait until new clients are served with the certificate that was put in force."""
        if self._exchanging is not None:
            await asyncio.wait([self._exchanging])

    async def collect(self) -> None:
        """Nothing to collect: what is counted here is counted at once."""

    def document(self) -> dict[str, Any]:
        """Return what `/status` says of it besides the fleet."""
        return self._feed.document()
