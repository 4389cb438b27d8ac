"""Following one source: its last good set, and what is known of how it does.

A source that knew backends and now says that there are none is not believed at once. An emptied record, a
cluster that restarts its controllers and a selector with a typo look the same as a fleet that was scaled to
nothing; in the latter case the backends that are kept refuse connections, and health takes them out by
itself. So the last set is kept for `believe_empty_seconds`, and only a source that has said nothing else for
that long is believed. It is not kept for ever, because an address may get another owner.

A source that dies of a mistake in it is started again. Memory: one set, one message.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing

from prefix_router.discovery.source import FoundSet, SourceName, SourceOptions, Trouble
from prefix_router.observe.events import DiscoveryStatus

logger = logging.getLogger(__name__)

MAX_MESSAGE = 500
"""Characters of a trouble that are kept: some of it is what a server has answered."""

RESTART_SECONDS = 5.0


class Follow:
    """One source, followed in a task of its own by whoever runs `run`."""

    def __init__(
        self,
        name: SourceName,
        options: SourceOptions,
        changed: Callable[[], None],
        believe_empty_seconds: float,
    ) -> None:
        """changed: called when the set is another one, or the source has been heard for the first time."""
        self.name = name
        self.options = options
        self.believe_empty_seconds = believe_empty_seconds
        self.found: FoundSet = ()
        self.heard = False
        """Whether it has given a set."""
        self.failures = 0
        self._changed = changed
        self._trouble: str | None = None
        self._succeeded_at: float | None = None
        self._emptying: asyncio.TimerHandle | None = None

    def inherit(self, other: Follow) -> None:
        """Go on from the set of the source that this one takes the place of, until it knows better."""
        self.found, self.failures = other.found, other.failures
        self._succeeded_at = other._succeeded_at

    async def run(self) -> None:
        """Follow the source until cancelled."""
        try:
            while True:
                try:
                    async with aclosing(self.options.source().reports()) as reports:
                        async for report in reports:
                            self.take(report)
                except Exception:
                    logger.exception("discovery by %s failed in the router", self.name.value)
                    self.take(Trouble("failed in the router; see its log"))
                await asyncio.sleep(RESTART_SECONDS)
        finally:
            self._stop_emptying()

    def take(self, report: FoundSet | Trouble) -> None:
        """Take one report."""
        if isinstance(report, Trouble):
            self._stop_emptying()
            if report.found:
                self._accept(report.found, report)
            else:
                self._fail(report)
            return
        self._succeeded_at = time.time()
        if not report and self.found and self.believe_empty_seconds > 0:
            self._doubt()
            return
        self._stop_emptying()
        self._accept(report)

    @property
    def status(self) -> DiscoveryStatus:
        """How it does."""
        return DiscoveryStatus(
            source=self.name.value,
            up=self.heard and self._trouble is None,
            backends=len(self.found),
            failures=self.failures,
            last_success_at=self._succeeded_at,
            last_error=self._trouble,
        )

    def _doubt(self) -> None:
        if self._emptying is not None:
            return
        kept = f"names no backend; what it named last is kept for {self.believe_empty_seconds:g} s"
        self._fail(Trouble(kept))
        self._emptying = asyncio.get_running_loop().call_later(self.believe_empty_seconds, self._accept, ())

    def _accept(self, found: FoundSet, trouble: Trouble | None = None) -> None:
        if trouble is not None:
            self._fail(trouble)
        elif self._trouble is not None:
            logger.info("discovery by %s works again: %d backends", self.name.value, len(found))
            self._trouble = None
        first, self.heard = not self.heard, True
        if found != self.found or first:
            self.found = found
            self._changed()

    def _fail(self, trouble: Trouble) -> None:
        """Count it; log it when it is another trouble than before."""
        message = " ".join(trouble.message.split())[:MAX_MESSAGE]
        self.failures += 1
        if message != self._trouble:
            logger.warning(
                "discovery by %s: %s (it named %d before)", self.name.value, message, len(self.found)
            )
        self._trouble = message

    def _stop_emptying(self) -> None:
        if self._emptying is not None:
            self._emptying.cancel()
            self._emptying = None
