"""A worker's strategy and the journal: who of them follows whom, and when.

A strategy that learns (`adaptive`) reads the journal just before it decides. A worker that has nothing to
decide would fall behind and lose what it has not read, so it also reads in between.

A reload may bring such a strategy, or take it away. A new one starts with the past that the journal still
has; one that is no longer in use neither reads nor writes, and the others let its running requests expire.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.workers.journal import MOST_READ_BYTES, RING_BYTES, JournalPeers

if TYPE_CHECKING:
    from prefix_router.routing.decision import Strategy
    from prefix_router.workers.journal import Journal

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.2
_READS = RING_BYTES // MOST_READ_BYTES
"""In a row, with a turn of the event loop between them: together a whole ring of each worker."""


class Sharing:
    """Has one worker's strategy share what it learns, if it does."""

    def __init__(self, journal: Journal, worker: int) -> None:
        self._journal = journal
        self._worker = worker
        self._strategy: Adaptive | None = None
        self._peers: JournalPeers | None = None

    def share(self, strategy: Strategy) -> None:
        """Share what this strategy learns from now on, and no other one's."""
        if strategy is self._strategy:
            return
        if self._strategy is not None:
            self._strategy.peers = None
        self._strategy = self._peers = None
        if isinstance(strategy, Adaptive):
            self._strategy = strategy
            self._peers = strategy.peers = JournalPeers(self._journal, self._worker)

    async def follow(self) -> None:
        """Read now and then, until cancelled."""
        told_of = 0
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            for _ in range(_READS):
                if self._strategy is None or not self._strategy.follow():
                    break
                await asyncio.sleep(0)
            lost = 0 if self._peers is None else self._peers.lost_bytes
            if lost > 2 * told_of:  # not each time: who is behind stays behind for a while
                told_of = lost
                logger.warning("this worker is behind: %d bytes of what others have sent are lost", lost)
