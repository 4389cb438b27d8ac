"""Which backend produced which response, known to all workers.

A client may continue on another connection, and so in another worker, than the one it began in. The pool
keeps the map for all; a worker keeps what it has seen itself and asks the pool for the rest. Only a request
that continues a response unknown here pays for it: one bounded question over the control channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prefix_router.proxy.continuations import Continuations
from prefix_router.routing.fleet import BackendName
from prefix_router.workers.messages import Continues, Recall, Remember

ANSWER_SECONDS = 0.25
"""How long a request waits for the pool; then it is routed like one that continues nothing."""


class SharedContinuations(Continuations):
    """A worker's map, backed by the pool's."""

    def __init__(self, send: Callable[[Remember | Recall], bool]) -> None:
        super().__init__()
        self._send = send
        self._asked: dict[str, asyncio.Future[None]] = {}

    def remember(self, response_id: str, backend: BackendName) -> None:
        """Note that `backend` produced the response, here and for all."""
        super().remember(response_id, backend)
        self._send(Remember(response_id, backend))

    async def recall(self, response_id: str) -> None:
        """Learn which backend produced the response, if anybody knows."""
        if self.backend(response_id) is not None:
            return
        answer = self._asked.get(response_id)
        if answer is None:
            if not self._send(Recall(response_id)):
                return
            answer = self._asked[response_id] = asyncio.get_running_loop().create_future()
        await asyncio.wait([answer], timeout=ANSWER_SECONDS)
        if not answer.done():
            self._end_wait(response_id)

    def answered(self, message: Continues) -> None:
        """Take the pool's answer."""
        if message.backend is not None:
            super().remember(message.response_id, message.backend)
        self._end_wait(message.response_id)

    def _end_wait(self, response_id: str) -> None:
        answer = self._asked.pop(response_id, None)
        if answer is not None:
            answer.set_result(None)
