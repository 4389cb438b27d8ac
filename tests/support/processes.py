"""The router as a real process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

_LISTENS = re.compile(r"data on [^ ]+:(\d+), admin on [^ ]+:(\d+)")


@dataclass
class RouterProcess:
    """A running `prefix-router serve`, and what it has logged so far."""

    process: asyncio.subprocess.Process
    port: int
    admin_port: int
    log: list[str]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_status(self, seconds: float = 10.0) -> int:
        return await asyncio.wait_for(self.process.wait(), seconds)

    async def readiness(self) -> int:
        """The status of `/readyz`."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.admin_port}/readyz") as response:
                return response.status

    async def metrics(self) -> str:
        """The text of `/metrics`."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.admin_port}/metrics") as response:
                return await response.text()


@asynccontextmanager
async def router_process(*arguments: str) -> AsyncIterator[RouterProcess]:
    """Start `prefix-router serve` on free ports; killed at the end if it still runs."""
    command = [
        sys.executable,
        "-m",
        "prefix_router",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--admin-port",
        "0",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    log: list[str] = []
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(20):
            while (line := (await process.stderr.readline()).decode()) and not _LISTENS.search(line):
                log.append(line)
        found = _LISTENS.search(line)
        assert found is not None, "".join(log)
        reading = asyncio.create_task(_collect(process.stderr, log))
        yield RouterProcess(process, int(found[1]), int(found[2]), log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if reading is not None:
            await reading


async def _collect(stream: asyncio.StreamReader, log: list[str]) -> None:
    while line := await stream.readline():
        log.append(line.decode())
