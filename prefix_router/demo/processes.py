"""The processes of the demo: stand-ins and a router, started, watched and always stopped.

Each runs in a session of its own, so that Ctrl-C reaches only the demo, which then stops them in order.
What they print is read all the time, because a full pipe would block them; the last lines are kept to say
what went wrong.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prefix_router.demo.arguments import DemoPlan

HOST = "127.0.0.1"

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_KEPT_LINES = 20


class DemoError(Exception):
    """Something the demo needs does not work; the message says what."""


class ChildProcess:
    """One `python -m prefix_router …`. Made by `start`, ended by `stop`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._spoke = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name=f"output of {name}")

    @classmethod
    async def start(cls, name: str, *arguments: str) -> ChildProcess:
        """Start it; it may not be ready yet."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prefix_router", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return cls(name, process)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def first_line(self) -> str:
        """The first thing it says. Raises DemoError when it ends or says nothing."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._spoke.wait()
        except TimeoutError:
            raise self.error("said nothing") from None
        if not self._lines:
            raise self.error("ended at once")
        return self._lines[0]

    async def ready(self, session: aiohttp.ClientSession, url: str) -> None:
        """Wait until `url` answers 200. Raises DemoError when it ends or takes too long."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                while self.running:
                    if await _answers(session, url):
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self.error("did not become ready") from None
        await self._reader
        raise self.error("ended while it was starting")

    async def stop(self) -> None:
        """End it: first politely, then not. Safe to call again."""
        if self.running:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await self._process.wait()
        await self._reader

    def error(self, what: str) -> DemoError:
        """An error about this process, with the last it said."""
        said = "".join(f"\n  {line}" for line in self._lines)
        return DemoError(f"{self.name} {what}{said}")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._lines.append(line.decode("utf-8", "replace").rstrip())
            self._spoke.set()
        self._spoke.set()


@asynccontextmanager
async def stand_ins(plan: DemoPlan) -> AsyncIterator[list[str]]:
    """The URLs of running replicas, one process each. All are stopped at the end, however it comes."""
    flags = ("--host", HOST, "--port", "0", "--profile", plan.profile, "--time-scale", str(plan.time_scale))
    children: list[ChildProcess] = []
    try:
        while len(children) < plan.replicas:
            name = f"replica {len(children)}"
            children.append(await ChildProcess.start(name, "simulated-vllm", *flags))
        yield [(await child.first_line()).split()[-1] for child in children]
    finally:
        await _stop_all(children)


class RunningRouter:
    """Where a router listens. `process` is None once it has been stopped."""

    def __init__(self, process: ChildProcess, port: int, admin_port: int) -> None:
        self.process = process
        self.url = f"http://{HOST}:{port}"
        self.admin_url = f"http://{HOST}:{admin_port}"


@asynccontextmanager
async def router(
    plan: DemoPlan, strategy: str, backends: list[str], session: aiohttp.ClientSession
) -> AsyncIterator[RunningRouter]:
    """A router over `backends`, ready to serve, as a process of its own; stopped at the end."""
    port = _usable_port(plan.port, "--port")
    admin_port = _usable_port(plan.admin_port, "--admin-port")
    flags = [
        *("--host", HOST, "--port", str(port), "--admin-host", HOST, "--admin-port", str(admin_port)),
        *("--strategy", strategy, "--log-level", "warning", "--shutdown-grace-seconds", "1"),
    ]
    for backend in backends:
        flags += ["--backend", backend]
    child = await ChildProcess.start("the router", "serve", *flags)
    try:
        running = RunningRouter(child, port, admin_port)
        await child.ready(session, f"{running.admin_url}/readyz")
        yield running
    finally:
        await _stop_all([child])


def _usable_port(port: int, flag: str) -> int:
    """`port`, or a free one for 0. Raises DemoError when it is taken."""
    with socket.socket() as probe:
        # As servers do: a port that only old connections still hold is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            problem = f"port {port} cannot be used ({error.strerror})"
            raise DemoError(f"{problem}: choose another one with {flag}") from None
        usable: int = probe.getsockname()[1]
        return usable


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _stop_all(children: list[ChildProcess]) -> None:
    """Stop all at the same time; a second Ctrl-C meanwhile does not leave any behind."""
    await asyncio.shield(asyncio.gather(*(child.stop() for child in children)))
