"""A backend that answers a request only when it is let through, and sees how many it has at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.support.scripted_backend import Conversation


@dataclass
class Turnstile:
    """A script. order: texts of the requests, as they came. highest: the most there were at a time."""

    open: bool = False
    name: bytes = b"ok"
    present: int = 0
    highest: int = 0
    order: list[str] = field(default_factory=list)
    _passes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._passes.release()

    def let_all_through(self) -> None:
        self.open = True
        self.let_through(1000)

    async def __call__(self, conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
                continue
            self.order.append(request.json()["messages"][0]["content"])
            self.present += 1
            self.highest = max(self.highest, self.present)
            if not self.open:
                await self._passes.acquire()
            await asyncio.sleep(0)  # another one that should not be here has time to come
            self.present -= 1
            await conversation.respond(200, self.name)
