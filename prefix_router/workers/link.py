"""A worker's end of the control channel.

Messages come whenever they like; the worker wants to wait for them one after the other. In between are one
future for what comes once, one event for what comes again and again, and a short queue of changes: of
several fleets that wait only the newest is kept, so it cannot grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from prefix_router.workers.channel import Channel
from prefix_router.workers.continuations import SharedContinuations
from prefix_router.workers.messages import (
    Begin,
    Continues,
    FleetView,
    ModelsRefreshed,
    Reconfigure,
    RefreshModels,
    Stop,
    Tell,
    ToPool,
    ToWorker,
)
from prefix_router.workers.reporter import Reporter

logger = logging.getLogger(__name__)

MODELS_SECONDS = 1.5
"""How long a request for an unknown model waits for the pool, which asks the backends for at most 1 s."""


class PoolLink:
    """Turns messages into what the worker waits for."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.channel: Channel[ToWorker, ToPool] = Channel(ToWorker, self._received, self._pool_gone)
        self.continuations = SharedContinuations(self.channel.send)
        self.busy: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Counts requests that run and that wait; none before there is a data port."""
        self.reporter = Reporter(self.channel.send, lambda: self.busy())
        self.begun: asyncio.Future[Begin | None] = loop.create_future()
        """None when the pool was gone before it said anything."""
        self.changes: deque[FleetView | Reconfigure] = deque()
        self.changed = asyncio.Event()
        self.stopping: asyncio.Future[Stop | None] = loop.create_future()
        """None when nobody is there any more to say how long it may take."""
        self.hurry = asyncio.Event()
        self._models_refreshed = asyncio.Event()

    async def refresh_models(self) -> None:
        """Have the backends asked for their models; bounded."""
        self._models_refreshed.clear()
        if self.channel.send(RefreshModels()):
            try:
                await asyncio.wait_for(self._models_refreshed.wait(), MODELS_SECONDS)
            except TimeoutError:
                logger.warning("the pool did not say within %g s which models there are", MODELS_SECONDS)

    def _received(self, message: ToWorker) -> None:
        match message:
            case FleetView() | Reconfigure():
                if self.changes and isinstance(self.changes[-1], FleetView):
                    self.changes.pop()  # fleets are whole: nobody needs one that is already out of date
                self.changes.append(message)
                self.changed.set()
            case Tell():
                self.reporter.flush(message.number)
            case Continues():
                self.continuations.answered(message)
            case ModelsRefreshed():
                self._models_refreshed.set()
            case Begin():
                self.begun.set_result(message)
            case Stop():
                self._told_to_stop(message)

    def _told_to_stop(self, message: Stop | None) -> None:
        if self.stopping.done():
            self.hurry.set()
        else:
            self.stopping.set_result(message)

    def _pool_gone(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.stopping.done():
            logger.warning("the process that owns the workers is gone: draining")
            self.stopping.set_result(None)
