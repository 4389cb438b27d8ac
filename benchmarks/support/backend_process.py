"""Holds the process of one backend: start, kill, freeze, restart on the same port, change its mode."""

from __future__ import annotations

import asyncio
import signal
import sys

from benchmarks.support.backend_program import Mode
from benchmarks.support.machine import free_port

_START_SECONDS = 30.0


class BackendProcess:
    """One backend. The port stays the same over all its processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "benchmarks.support.backend_program", "--name", self.name]
        process = self._process = await asyncio.create_subprocess_exec(
            *command,
            "--port",
            str(self.port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
        assert line == b"listening\n", f"backend {self.name} did not start"

    async def kill(self) -> None:
        """End it with SIGKILL; its connections are reset, its port refuses."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()

    async def restart(self) -> None:
        """Kill it and start another process on the same port."""
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """Stop it with SIGSTOP: its kernel goes on accepting, nobody answers."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._running().send_signal(signal.SIGCONT)

    async def set_mode(self, mode: Mode) -> None:
        """Change how it behaves."""
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(f"{mode.value}\n".encode())
        await stdin.drain()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"backend {self.name} does not run"
        return self._process
