"""The exact view of a fleet's KV caches: one subscriber for each engine, one index, one tokenizer.

    events = KvEvents(sources, prompt_tokens, counters)
    events.start()
    held = await events.holdings(request, body)     # {backend: tokens}, or None: ask somebody else
    events.update(other_sources)                    # a reload: engines that stay keep what is known of them
    await events.stop()

Each process of the router has one of its own: every subscriber hears everything. Needs the extra
`prefix_router[events]`; this module is imported only where KV events are configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import zmq.asyncio

from prefix_router.kv_events.events import TOKEN_BYTES
from prefix_router.kv_events.index import MOST_BLOCKS, KvIndex
from prefix_router.kv_events.prompt_tokens import PromptTokens
from prefix_router.kv_events.source import Source
from prefix_router.kv_events.status import Counters, EngineStatus, NoCounters
from prefix_router.kv_events.subscriber import Patience, Subscriber
from prefix_router.openai_api.request import Api
from prefix_router.routing.fleet import BackendName

logger = logging.getLogger(__name__)


class Asked(Protocol):
    """What is looked at of a request: an `openai_api.request.RoutingRequest` has it."""

    @property
    def api(self) -> Api:
        """The API that it is for."""

    @property
    def model(self) -> str | None:
        """The model or adapter that it asks for."""

    @property
    def cache_salt(self) -> str | None:
        """What keeps its blocks apart from others."""


class KvEvents:
    """Who holds how much of a request's prompt, by what the engines say."""

    def __init__(
        self,
        sources: Iterable[Source],
        prompts: PromptTokens,
        counters: Counters | None = None,
        *,
        most_blocks: int = MOST_BLOCKS,
        patience: Patience | None = None,
    ) -> None:
        self._sources = tuple(sources)
        self._prompts = prompts
        self._counters = counters or NoCounters()
        self._patience = patience or Patience()
        self._index = KvIndex(most_blocks)
        self._context: zmq.asyncio.Context | None = None
        self._running: dict[Source, tuple[Subscriber, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Those that are running, and those that are ending."""

    def start(self) -> None:
        """Begin to listen, in a running event loop. Returns at once: engines may come later."""
        self._context = zmq.asyncio.Context()
        self.update(self._sources)

    def update(self, sources: Iterable[Source], most_blocks: int | None = None) -> None:
        """Listen to these engines from now on. Those that were listened to before are not disturbed."""
        assert self._context is not None, "not started"
        self._sources = tuple(dict.fromkeys(sources))
        if most_blocks is not None:
            self._index.limit(most_blocks)
        for source in self._running.keys() - set(self._sources):
            subscriber, task = self._running.pop(source)
            task.cancel()
            subscriber.leave()
        for source in self._sources:
            if source not in self._running:
                self._running[source] = self._listen(source)

    def _listen(self, source: Source) -> tuple[Subscriber, asyncio.Task[None]]:
        assert self._context is not None
        subscriber = Subscriber(source, self._index, self._context, self._counters, self._patience)
        task = asyncio.get_running_loop().create_task(
            subscriber.run(), name=f"KV events of {source.backend}, rank {source.rank}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return subscriber, task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task %s died", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Let go of everything. Safe to call twice."""
        if self._context is not None:
            self.update(())
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._context.destroy(linger=0)
            self._context = None
        self._prompts.close()

    async def holdings(self, request: Asked, raw_body: bytes) -> Mapping[BackendName, int] | None:
        """Return how many tokens of its prompt each backend holds; None when the prompt's tokens are not
        known.

        A backend of which nothing is known is left out. Raises nothing but for being cancelled.
        """
        if not self._index.is_anybody_in_sync():
            return None
        tokens = await self._prompts.read(request.api, raw_body)
        if tokens is None:
            return None
        return self._index.held_of_prompt(tokens, request.model, request.cache_salt or None)

    async def held_shares(self, request: Asked, raw_body: bytes) -> Mapping[BackendName, float] | None:
        """Return what share of its prompt, 0 to 1, each backend holds; as `holdings` otherwise."""
        if not self._index.is_anybody_in_sync():
            return None
        tokens = await self._prompts.read(request.api, raw_body)
        if not tokens:
            return None
        held = self._index.held_of_prompt(tokens, request.model, request.cache_salt or None)
        count = len(tokens) // TOKEN_BYTES
        return {backend: min(tokens_held / count, 1.0) for backend, tokens_held in held.items()}

    def statuses(self) -> Sequence[EngineStatus]:
        """Return how each engine's events stand, in the order of configuration."""
        return [self._running[source][0].status() for source in self._sources if source in self._running]
