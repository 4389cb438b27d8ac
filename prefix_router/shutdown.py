"""The last minutes of a router, in the order in which they happen.

1. Not ready, and responses ask their clients to connect anew; new connections are still taken for
   `delay_seconds`, because whoever sends them here needs time to notice.
2. No new connections. What runs may end within `grace_seconds`; how much is left is logged every few seconds.
3. What clients have not yet taken of a response that is written is given to them, within the same grace.

Bounded by the sum of the two times. May be cancelled at any await; what comes after (cutting, closing) is the
caller's, and needs nothing of this to have happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from prefix_router.proxy.front_door import FrontDoor
from prefix_router.proxy.handler import Handler

logger = logging.getLogger(__name__)

REPORT_INTERVAL_SECONDS = 5.0


async def drain(
    handler: Handler,
    front_door: FrontDoor,
    stop_listening: Callable[[], None],
    *,
    delay_seconds: float,
    grace_seconds: float,
    clock: Callable[[], float],
) -> None:
    """Bring the data port to rest. `clock` gives seconds (monotonic)."""
    handler.closing = True
    if delay_seconds > 0:
        logger.info("draining: taking new connections for %g s more", delay_seconds)
        await asyncio.sleep(delay_seconds)
    stop_listening()
    deadline = clock() + grace_seconds
    while not await handler.drained(min(REPORT_INTERVAL_SECONDS, max(deadline - clock(), 0))):
        left = deadline - clock()
        if left <= 0:
            if grace_seconds > 0:
                logger.warning("draining: %d requests are cut after %g s", handler.active, grace_seconds)
            return
        logger.info("draining: %d requests running, at most %.0f s more", handler.active, left)
    await front_door.flushed(deadline - clock())


async def stop_unless_hurried(
    stop: Callable[[float, float], Awaitable[None]],
    grace_seconds: float,
    delay_seconds: float,
    hurry: asyncio.Event,
) -> None:
    """Call `stop` with these seconds; once `hurry` is set, break that off and call it with none."""
    stopping = asyncio.ensure_future(stop(grace_seconds, delay_seconds))
    hurrying = asyncio.ensure_future(hurry.wait())
    await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if stopping.done():
        stopping.result()
        return
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    await stop(0, 0)
