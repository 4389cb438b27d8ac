"""One worker as the pool sees it: a process, the line to it, and what it last said."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from prefix_router.workers.channel import Channel
from prefix_router.workers.messages import Begin, ToPool, ToWorker

_COMMAND = ("-m", "prefix_router.workers.worker")


class WorkerProcess:
    """A worker process, from its start to its end; a successor is another object.

    number: its column in the shared counts. confirmed: the newest fleet that it has taken over. active,
    waiting: requests that run in it, and those of them that wait. answered: the newest `Tell` that it has
    answered. silent_ticks: how often `tick` was called since it last said something.
    """

    def __init__(self, number: int, received: Callable[[WorkerProcess, ToPool], None]) -> None:
        self.number = number
        self.confirmed = 0
        self.active = 0
        self.waiting = 0
        self.answered = 0
        self.silent_ticks = 0
        self.ready = False
        self.failure = ""
        self._begun = False
        self._line_closed = asyncio.Event()
        self._received = received
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel[ToPool, ToWorker] = Channel(ToPool, self._heard, self._line_closed.set)

    @property
    def pid(self) -> int | None:
        """The process id, None before there is a process."""
        return None if self._process is None else self._process.pid

    async def start(self, counts_descriptor: int, others: Iterable[int]) -> None:
        """Start the process, which then waits for `begin`. others: what it inherits too. Raises OSError."""
        ours, theirs = socket.socketpair()
        inherited = (theirs.fileno(), counts_descriptor, *others)
        with theirs:
            await self._channel.open(ours)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *_COMMAND,
                    *map(str, inherited[:2]),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=inherited,
                )
            except BaseException:
                self._channel.close()
                raise

    def begin(self, message: Begin) -> None:
        """Tell it what it is. It hears nothing before, so that nothing older can come after."""
        self._begun = True
        self.confirmed = message.fleet.version
        self._channel.send(message)

    def send(self, message: ToWorker) -> bool:
        """Tell it something; False when it has not begun, is gone, or does not read."""
        return self._begun and self._channel.send(message)

    def kill(self) -> None:
        """End it at once; its connections are lost."""
        with suppress(ProcessLookupError):
            if self._process is not None:
                self._process.kill()

    async def ended(self) -> str:
        """Wait for its end, and until all that it said has been heard; return how it ended, in words."""
        assert self._process is not None
        status = await self._process.wait()
        self.ready = False
        await self._line_closed.wait()
        return f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"

    def tick(self) -> int:
        """Count that it has been silent; return for how many ticks."""
        self.silent_ticks += 1
        return self.silent_ticks

    def document(self) -> dict[str, Any]:
        """Return what `/status` says of it."""
        return {
            "number": self.number,
            "pid": self.pid,
            "ready": self.ready,
            "active_requests": self.active,
        }

    def _heard(self, message: ToPool) -> None:
        self.silent_ticks = 0
        self._received(self, message)
