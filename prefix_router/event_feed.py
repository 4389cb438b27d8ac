"""What engines say of their caches, for the data path: listens if anybody publishes, and answers in shares.

Joins settings, requests and `kv_events`, which know nothing of each other. Made once with a data port; a
reload changes to whom it listens. Without a backend that publishes nothing is imported, and nothing is asked.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from prefix_router.openai_api.request import Api
from prefix_router.routing.fleet import BackendName
from prefix_router.settings.model import StrategyName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefix_router.kv_events.kv_events import KvEvents
    from prefix_router.kv_events.source import Source
    from prefix_router.proxy.decider import Subject
    from prefix_router.settings.model import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    api: Api
    model: str | None
    cache_salt: str | None


class EventFeed:
    """Of one process."""

    def __init__(self, settings: Settings) -> None:
        """Nobody is listened to yet."""
        self._settings = settings
        self._wanted = False
        self._events: KvEvents | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is somebody to ask, and a strategy that wants to know."""
        return self._wanted

    async def start(self) -> None:
        """Begin to listen, if some backend publishes events. Raises TokenizerError."""
        settings = self._settings
        tokenizer = settings.routing.prefix.tokenizer
        if tokenizer is None or not any(backend.kv_events for backend in settings.backends):
            return
        from prefix_router.kv_events.kv_events import KvEvents
        from prefix_router.kv_events.prompt_tokens import PromptTokens

        prompts = await asyncio.to_thread(PromptTokens, Path(tokenizer))
        limit = settings.routing.kv_events.max_blocks
        self._events = KvEvents(_sources(settings), prompts, most_blocks=limit)
        self._events.start()
        self._follow_strategy(settings)

    def update(self, settings: Settings) -> None:
        """Listen to the backends of these settings from now on."""
        if self._events is not None:
            self._events.update(_sources(settings), settings.routing.kv_events.max_blocks)
        elif any(backend.kv_events for backend in settings.backends):
            logger.warning("KV events were not configured at the start: a restart is needed to follow them")
        self._follow_strategy(settings)

    async def stop(self) -> None:
        """Let go of everything."""
        if self._events is not None:
            await self._events.stop()

    async def shares(self, subject: Subject, body: bytes) -> Mapping[BackendName, float] | None:
        """Return what share of the prompt each backend holds; None when that is not known of this one."""
        if self._events is None:
            return None
        asked = _Asked(Api(subject.api), subject.model, subject.cache_salt)
        return await self._events.held_shares(asked, body)

    def document(self) -> dict[str, Any]:
        """Return what `/status` says of it: how the events of each engine stand."""
        if self._events is None:
            return {}
        return {"kv_events": [msgspec.structs.asdict(status) for status in self._events.statuses()]}

    def _follow_strategy(self, settings: Settings) -> None:
        adaptive = settings.routing.strategy is StrategyName.ADAPTIVE
        self._wanted = self._events is not None and adaptive


def _sources(settings: Settings) -> list[Source]:
    from prefix_router.kv_events.source import sources_of

    return [
        source
        for backend in settings.backends
        if backend.kv_events is not None
        for source in sources_of(
            BackendName(backend.name), backend.kv_events, backend.kv_events_replay, backend.kv_events_ranks
        )
    ]
