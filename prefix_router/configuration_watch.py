"""Reloads the configuration when its file has changed, if the settings want that.

A reload may turn this off, and then it is this that runs the reload: so the reload is a task of its own, and
turning off ends the watch alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from prefix_router.discovery.file_watch import SeenFile, changes
from prefix_router.proxy.tasks import TaskGroup

logger = logging.getLogger(__name__)


class ConfigurationWatch:
    """Watches a file while `set_on` says so. file: as it was when it was read; None for no file at all.

    reload: must not raise.
    """

    def __init__(
        self,
        file: SeenFile | None,
        reload: Callable[[], Awaitable[object]],
        look_seconds: float | None = None,
    ) -> None:
        self._file = file
        self._reload = reload
        self._look_seconds = look_seconds
        self._tasks = TaskGroup()
        self._watching: asyncio.Task[None] | None = None

    def set_on(self, on: bool) -> None:
        """Watch from now on, or no more."""
        if on and self._watching is None:
            if self._file is None:
                logger.warning("reload.watch: the router was started without --config: nothing is watched")
                return
            self._watching = self._tasks.start("watch configuration", self._watch(self._file))
        elif not on and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def stop(self) -> None:
        """End the watch, and a reload that it has begun."""
        self._watching = None
        await self._tasks.stop()

    async def _watch(self, file: SeenFile) -> None:
        async with aclosing(changes(file, self._look_seconds)) as looks:
            async for exists in looks:
                logger.info("%s has %s: reloading", file.path, "changed" if exists else "gone")
                await asyncio.shield(self._tasks.start("reload", self._reload_once()))

    async def _reload_once(self) -> None:
        await self._reload()
