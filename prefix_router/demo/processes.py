"""The processes of the demo: stand-ins and a router, started, watched and always stopped.

Each runs in a session of its own, so that Ctrl-C reaches only the demo, which then stops them in order.
What they print is read all the time, because a full pipe would block them; the last lines are kept to say
what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from prefix_router.demo.arguments import DemoPlan

HOST = "127.0.0.1"

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_KEPT_LINES = 20
_URL = re.compile(r"http://\S+")
_OURS = (sys.executable, "-m", "prefix_router")


class DemoError(Exception):
    """Something the demo needs does not work; the message says what."""


class ChildProcess:
    """One program, `python -m prefix_router …` by default. Made by `start`, ended by `stop`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._url: str | None = None
        self._spoke = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name=f"output of {name}")

    @classmethod
    async def start(cls, name: str, *arguments: str, program: tuple[str, ...] = _OURS) -> ChildProcess:
        """Start it; it may not be ready yet. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *(*program, *arguments),
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

    async def url(self) -> str:
        """The first URL it prints. Raises DemoError when it ends, or is silent for long."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._spoke.wait()
        except TimeoutError:
            raise self.error("did not say where it listens") from None
        if self._url is None:
            raise self.error("ended while it was starting")
        return self._url

    async def ready(self, session: aiohttp.ClientSession, url: str) -> None:
        """Wait until `url` answers 200. Raises DemoError when the process ends or takes too long."""
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
        """An error about this process, with the last lines it printed."""
        said = "".join(f"\n  {line}" for line in self._lines)
        return DemoError(f"{self.name} {what}{said}")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode("utf-8", "replace").rstrip()
            self._lines.append(text)
            if self._url is None and (found := _URL.search(text)):
                self._url = found[0]
                self._spoke.set()
        self._spoke.set()


@asynccontextmanager
async def stand_ins(plan: DemoPlan) -> AsyncIterator[dict[str, str]]:
    """Running replicas, one process each: URLs by name. All are stopped at the end, however it comes."""
    flags = ("--host", HOST, "--port", "0", "--profile", plan.profile, "--time-scale", str(plan.time_scale))
    children: dict[str, ChildProcess] = {}
    try:
        for number in range(1, plan.replicas + 1):
            name = f"replica-{number}"
            children[name] = await ChildProcess.start(name, "simulated-vllm", *flags)
        yield {name: await child.url() for name, child in children.items()}
    finally:
        await stop_all(*children.values())


@dataclass(frozen=True, slots=True)
class RunningRouter:
    """A router that serves: its process and where it listens."""

    process: ChildProcess
    url: str
    admin_url: str


@asynccontextmanager
async def router(
    plan: DemoPlan, strategy: str, replicas: Mapping[str, str], session: aiohttp.ClientSession
) -> AsyncIterator[RunningRouter]:
    """A router over `replicas`, ready to serve, as a process of its own; stopped at the end.

    It gets a file because flags cannot name backends, and with names the ring, and so the result, does not
    depend on which ports happened to be free.
    """
    with _router_config(plan, replicas) as config:
        child = await ChildProcess.start(
            "the router",
            *("serve", "--config", config, "--strategy", strategy),
            *("--log-level", "warning", "--shutdown-grace-seconds", "1"),
        )
        try:
            running = RunningRouter(child, f"http://{HOST}:{plan.port}", f"http://{HOST}:{plan.admin_port}")
            await child.ready(session, f"{running.admin_url}/readyz")
            yield running
        finally:
            await stop_all(child)


@contextmanager
def _router_config(plan: DemoPlan, replicas: Mapping[str, str]) -> Iterator[str]:
    """The path of a configuration file, which is JSON and so YAML too; gone at the end."""
    settings = {
        "listen": {"host": HOST, "port": plan.port},
        "admin": {"host": HOST, "port": plan.admin_port},
        "backends": [{"name": name, "url": url} for name, url in replicas.items()],
    }
    with NamedTemporaryFile("w", prefix="prefix-router-demo-", suffix=".yaml") as file:
        json.dump(settings, file)
        file.flush()
        yield file.name


def usable_port(port: int, flag: str) -> int:
    """`port`, or a free one for 0. Raises DemoError, which names the `flag` to change, when it is taken."""
    with socket.socket() as probe:
        # As servers do: a port that only old connections still hold is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            problem = f"port {port} cannot be used ({error.strerror})"
            raise DemoError(f"{problem}: choose another one with {flag}") from None
        free: int = probe.getsockname()[1]
        return free


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def stop_all(*children: ChildProcess) -> None:
    """Stop all, side by side. To be cancelled meanwhile, which happens once at most, leaves none behind."""
    stopping = asyncio.gather(*(child.stop() for child in children))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await stopping
        raise
