"""Follows all sources and says when the fleet should be another one.

Sources are told apart by name and options: `sync` starts those that are new, ends those that are gone and
leaves alone those whose options are the same. One whose options have changed goes on from the set that was
known before, until it has been heard.

Changes come in bursts: a rollout is some twenty events in a second. The first one of them starts a short
wait, then all that has come is applied as one change, so that the ring is made once. The wait does not begin
anew with each event: a source that flaps without a pause cannot hold up everybody else.

Cost: one task for each source and one that applies; O(backends) for each change that is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from prefix_router.discovery.follow import Follow
from prefix_router.discovery.source import FoundSet, SourceName, SourceOptions
from prefix_router.observe.events import DiscoveryStatus

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """What is followed, and how patiently. sources: in no order; empty for no discovery."""

    sources: Mapping[SourceName, SourceOptions]
    settle_seconds: float = 0.25
    first_answer_seconds: float = 30
    believe_empty_seconds: float = 300


class Discovery:
    """Used from the event loop's thread only. `start` it, `stop` it.

    apply: puts what is found in force; it asks `found` itself, so that it always takes the newest. When it
    raises, it is tried again.
    """

    def __init__(self, options: DiscoveryOptions, apply: Callable[[], Awaitable[None]]) -> None:
        self._options = options
        self._apply = apply
        self._follows: dict[SourceName, Follow] = {}
        self._tasks: dict[SourceName, asyncio.Task[None]] = {}
        self._applying: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._answered = False
        self._give_up_at = float("inf")

    def start(self) -> None:
        """Follow the sources from now on."""
        self._give_up_at = asyncio.get_running_loop().time() + self._options.first_answer_seconds
        self._applying = asyncio.create_task(self._apply_changes(), name="discovery")
        self.sync(self._options)

    async def stop(self) -> None:
        """End everything."""
        tasks = [*self._tasks.values(), *([self._applying] if self._applying is not None else [])]
        self._tasks.clear()
        self._applying = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def sync(self, options: DiscoveryOptions) -> None:
        """Follow exactly these sources from now on."""
        self._options = options
        for name, follow in list(self._follows.items()):
            wanted = options.sources.get(name)
            if wanted != follow.options:
                self._tasks.pop(name).cancel()
            if wanted is None:
                del self._follows[name]
            follow.believe_empty_seconds = options.believe_empty_seconds
        for name, source in options.sources.items():
            if name not in self._tasks:
                follow = Follow(name, source, self._changed.set, options.believe_empty_seconds)
                if name in self._follows:
                    follow.inherit(self._follows[name])
                self._follows[name] = follow
                self._tasks[name] = asyncio.create_task(follow.run(), name=f"discovery:{name.value}")

    def found(self, among: Collection[SourceName] | None = None) -> dict[SourceName, FoundSet]:
        """Return the last good set of each source, or of those `among` them."""
        return {
            name: follow.found for name, follow in self._follows.items() if among is None or name in among
        }

    @property
    def answered(self) -> bool:
        """Whether all sources have been heard and what they said is in force; or the time for that is over.

        Once true it stays true. O(sources).
        """
        if not self._answered:
            heard = all(name in self._follows and self._follows[name].heard for name in self._options.sources)
            late = bool(self._follows) and asyncio.get_running_loop().time() >= self._give_up_at
            self._answered = (heard and not self._changed.is_set()) or late
        return self._answered

    @property
    def statuses(self) -> list[DiscoveryStatus]:
        """How each source does, in order of precedence."""
        return [self._follows[name].status for name in SourceName if name in self._follows]

    async def _apply_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._options.settle_seconds)
            try:
                # Cleared only afterwards if nothing came meanwhile: `answered` looks at it.
                before = self.found()
                await self._apply()
                if self.found() == before:
                    self._changed.clear()
            except Exception:
                logger.exception("what was found cannot be put in force")
                await asyncio.sleep(_RETRY_SECONDS)
