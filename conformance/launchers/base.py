"""Starting a router with the settings that a case asks for, and knowing what it cannot do.

A launcher is the only place that knows a router by name. It states what the router lacks; cases that need
it are then "not applicable", with that reason.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from conformance.backend import Backend
from conformance.client import ClientConnection
from conformance.endpoints import Endpoint
from conformance.model import Capability, NotApplicable
from conformance.profile import Profile
from conformance.wire import Answer, BrokenError, ClosedError, request_bytes

READY_WITHIN_SECONDS = 60.0
STOPS_WITHIN_SECONDS = 5.0


class StartError(Exception):
    """The router did not come up. The text holds the end of its log."""


@dataclass
class RunningRouter:
    """A router that takes requests.

    process, folder: only of one that the suite started.

    carries: which endpoints it has a route for, as far as it was asked. uses: names of the backends that get
    different prompts when all is well, None before that was seen.
    """

    launcher: Launcher
    host: str
    port: int
    admin_port: int | None = None
    admin_host: str = "127.0.0.1"
    pid: int | None = None
    process: asyncio.subprocess.Process | None = None
    folder: Path | None = None
    metrics_port: int | None = None
    carries: dict[Endpoint, bool] = field(default_factory=dict)
    uses: frozenset[str] | None = None

    async def in_flight(self) -> dict[str, int] | None:
        """Return its own counts of requests in flight by backend, None where it tells none."""
        return await self.launcher.in_flight(self)

    async def admin(self, path: str, *, method: str = "GET", body: bytes = b"") -> Answer:
        """Ask its admin port (its only port where it has no other).

        Raises OSError, TimeoutError, ClosedError or BrokenError.
        """
        host, port = (self.host, self.port) if self.admin_port is None else (self.admin_host, self.admin_port)
        return await fetch(host, port, path, method=method, body=body)

    def log(self) -> str:
        """Return the end of its log."""
        if self.folder is None:
            return ""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that the suite started."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def stop(self) -> None:
        """End it, kindly first."""
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(STOPS_WITHIN_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class Launcher(abc.ABC):
    """Knows one router.

    capabilities: what it has. unsupported: profile field -> why the router cannot be told; a field that is
    neither here nor known to `command` is a mistake in the launcher.
    """

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]]
    unsupported: ClassVar[Mapping[str, str]] = {}

    def lacks(self, needs: frozenset[Capability], profile: Profile) -> str | None:
        """Say why a case does not apply, None when it does."""
        for capability in sorted(needs, key=lambda need: need.name):
            if capability not in self.capabilities:
                return f"the router does not offer {capability.value}"
        for name in profile.asked_for:
            if name in self.unsupported:
                return f"{name} cannot be set: {self.unsupported[name]}"
        return None

    @abc.abstractmethod
    def version(self) -> str:
        """Return the version under test."""

    @abc.abstractmethod
    async def start(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
        """Start it and wait until it takes requests. Raises StartError."""

    async def in_flight(self, router: RunningRouter) -> dict[str, int] | None:
        """Return the router's counts by backend, None where it tells none."""
        return None

    async def set_backends(
        self, router: RunningRouter, profile: Profile, backends: Sequence[Backend]
    ) -> None:
        """Make `backends` all that the running router has. Raises NotApplicable where it cannot."""
        raise NotApplicable("the router's backends cannot be changed while it runs")


class CommandLauncher(Launcher):
    """A router that is started by a command."""

    @abc.abstractmethod
    def command(self, profile: Profile, urls: Sequence[str], ports: Ports, folder: Path) -> list[str]:
        """Return the command line; files that it needs may be written to `folder`."""

    async def start(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
        """Spawn it, and ask until an answer comes from a backend."""
        router = await self.spawn(profile, backends)
        try:
            await wait_ready(router)
        except TimeoutError as error:
            log = router.log()
            await router.stop()
            raise StartError(f"{self.name} took no request:\n{log}") from error
        return router

    async def spawn(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
        """Start the command with its output in a file, and do not wait for anything."""
        urls = [profile.backend_address.format(port=backend.port) for backend in backends]
        ports = Ports(*free_ports(3))
        folder = Path(tempfile.mkdtemp(prefix=f"conformance-{self.name}-"))
        command = self.command(profile, urls, ports, folder)
        with (folder / "log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=environment()
            )
        admin_port = ports.admin if Capability.ADMIN in self.capabilities else None
        return RunningRouter(
            self,
            profile.listen_host,
            ports.data,
            admin_port,
            "127.0.0.1",
            process.pid,
            process,
            folder,
            ports.metrics,
        )


@dataclass(frozen=True, slots=True)
class Ports:
    """Free ports for one router."""

    data: int
    admin: int
    metrics: int


def environment() -> dict[str, str]:
    """Return the environment for a router: ours, with output that is not held back."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def free_ports(count: int) -> list[int]:
    """Return free loopback ports, all different."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports.append(int(holder.getsockname()[1]))
        return ports


async def fetch(
    host: str, port: int, path: str, *, method: str = "GET", body: bytes = b"", seconds: float = 5.0
) -> Answer:
    """Ask once on a connection of its own. Raises OSError, TimeoutError, ClosedError or BrokenError."""
    headers = [("Connection", "close")]
    request = request_bytes(path, body, method=method, headers=headers, host=f"{host}:{port}")
    async with asyncio.timeout(seconds):
        async with await ClientConnection.open(host, port) as connection:
            await connection.send(request)
            return await connection.answer(head_only=method == "HEAD")


async def wait_ready(router: RunningRouter, *, seconds: float = READY_WITHIN_SECONDS) -> None:
    """Wait until a request comes back with 200. Raises TimeoutError, also when the process has ended."""
    request = request_bytes(Endpoint.CHAT.path, Endpoint.CHAT.request("ready?"))
    async with asyncio.timeout(seconds):
        while True:
            if router.process is not None and router.process.returncode is not None:
                raise TimeoutError
            try:
                async with await ClientConnection.open(router.host, router.port) as connection:
                    async with asyncio.timeout(5):
                        await connection.send(request)
                        if (await connection.answer()).status == 200:
                            return
            except (OSError, ClosedError, BrokenError, TimeoutError):
                pass
            await asyncio.sleep(0.1)


def json_of(answer: Answer) -> object:
    """Return the decoded body, None when it is not JSON."""
    try:
        return json.loads(answer.body)
    except ValueError:
        return None
