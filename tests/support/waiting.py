"""Wait for what a server will do, without assuming when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.005


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition()` is true; fail when it does not become true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        good = condition()
        while not good:
            await asyncio.sleep(_PAUSE_SECONDS)
            good = condition()


async def eventually(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool]) -> T:
    """Ask until the answer is good, and return it; fail when it does not become good."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await ask()
        while not good(answer):
            await asyncio.sleep(_PAUSE_SECONDS)
            answer = await ask()
    return answer
