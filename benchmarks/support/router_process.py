"""The router as a real process, and what the system and its own admin listener say of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.machine import free_port

_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a router holds: resident memory of all its processes (MB), open files, running asyncio tasks.

    tasks is None with several workers: each has tasks of its own.
    """

    resident_mb: float
    files: int
    tasks: int | None


class RouterProcess:
    """`python -m prefix_router serve`, started under `watched_router` so that its tasks can be counted."""

    def __init__(self, settings: Mapping[str, Any], workers: int = 1) -> None:
        """settings: the configuration but for ports. workers: processes behind the data port."""
        self.port, self.admin_port = free_port(), free_port()
        self._workers = workers
        self._directory = tempfile.TemporaryDirectory(prefix="router-")
        self._tasks_file = Path(self._directory.name) / "tasks"
        self.log_file = Path(self._directory.name) / "log"
        document = {
            **settings,
            "listen": {"host": "127.0.0.1", "port": self.port, "backlog": 4096},
            "admin": {"host": "127.0.0.1", "port": self.admin_port},
        }
        if workers > 1:
            document["workers"] = workers
        self.config_file = Path(self._directory.name) / "router.yaml"
        self.config_file.write_text(json.dumps(document))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        with self.log_file.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.support.watched_router",
                "serve",
                "--config",
                str(self.config_file),
                stderr=log,
                env={**os.environ, "ROUTER_TASKS_FILE": str(self._tasks_file)},
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.returncode is None:
            try:
                if (await self.ask_admin("/readyz"))[0] == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)
        raise RuntimeError(f"the router did not start:\n{self.log_file.read_text()}")

    async def stop(self) -> None:
        """Terminate it; kill it when it does not end."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._directory.cleanup()

    @property
    def alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.returncode is None

    async def ask_admin(self, path: str) -> tuple[int, bytes]:
        """Ask the admin listener. Raises OSError when it cannot be reached."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port)
        try:
            writer.write(b"GET %b HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n" % path.encode())
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if not head:
            raise ConnectionResetError("no answer")
        return int(head.split(b" ", 2)[1]), body

    async def status(self) -> dict[str, Any]:
        """Return the `/status` document."""
        document: dict[str, Any] = json.loads((await self.ask_admin("/status"))[1])
        return document

    async def unfinished(self) -> int:
        """Return the requests that the router still counts: in flight on backends, and active."""
        status = await self.status()
        in_flight: int = sum(backend["in_flight"] for backend in status["backends"])
        return in_flight + int(status["active_requests"])

    async def settled(self, seconds: float) -> int:
        """Wait, at most `seconds`, until nothing is unfinished; return what still is."""
        deadline = time.monotonic() + seconds
        while (left := await self.unfinished()) and time.monotonic() < deadline:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.05)
        return left

    async def metrics(self) -> dict[str, float]:
        """Return all samples by their exposed name, labels included."""
        body = (await self.ask_admin("/metrics"))[1].decode()
        lines = (line.rpartition(" ") for line in body.splitlines() if line and line[0] != "#")
        return {name: float(value) for name, _, value in lines}

    def resident_mb(self) -> float:
        """Return the resident memory of all its processes."""
        return sum(process.memory_info().rss for process in self.processes()) / 1e6

    async def footprint(self) -> Footprint:
        """Return what it holds now."""
        files = sum(process.num_fds() for process in self.processes())
        tasks = None if self._workers > 1 else await self._count_tasks()
        return Footprint(round(self.resident_mb(), 1), files, tasks)

    def processes(self) -> list[psutil.Process]:
        """Return its processes, the one that was started first."""
        assert self._process is not None
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    async def _count_tasks(self) -> int:
        assert self._process is not None
        self._tasks_file.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(10):
            while not self._tasks_file.exists():  # noqa: ASYNC110  (written by another process, whole)
                await asyncio.sleep(0.01)
        return int(self._tasks_file.read_text())
