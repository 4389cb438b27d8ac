"""Runs services of docker-compose.yml as processes on this machine, as faithfully as that goes.

A service's own command, files and health check are run. What a container would give each service alone is
rewritten: a host name and port become 127.0.0.1 and a free port, a mounted path becomes a path here. Not
imitated: the read-only file system, the user and the capabilities.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.compose import Service, entrypoint
from tests.support.tools import ROOT, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

HEALTHY_WITHIN_SECONDS = 40.0
STOPS_WITHIN_SECONDS = 10.0
POLL_SECONDS = 0.2


class ComposeProcesses:
    """The services that one test module runs.

    adapt: service name -> a function that changes the text of each file mounted into it (an interval, say).
    """

    def __init__(
        self,
        services: Iterable[Service],
        folder: Path,
        adapt: Mapping[str, Callable[[str], str]] | None = None,
    ) -> None:
        self._services = {service.name: service for service in services}
        self._folder = folder
        self._adapt = adapt or {}
        self._ports = _free_ports((name, port) for name, s in self._services.items() for port in s.listens_on)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, name: str, inside: int, path: str = "") -> str:
        """Where this machine reaches what the service offers on port `inside` of its container."""
        return f"http://127.0.0.1:{self._ports[name, inside]}{path}"

    def start(self, *names: str) -> None:
        """Start services, each after what it depends on is healthy."""
        for name in names:
            for needed in self._services[name].depends_on:
                self.wait_until_healthy(needed)
            self._running[name] = self._spawn(self._services[name])

    def wait_until_healthy(self, name: str) -> None:
        """Run the service's own health check until it succeeds. Raises AssertionError with the log if not."""
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while not self.is_healthy(name):
            gone = self._running[name].poll() is not None
            if gone or time.monotonic() > deadline:
                raise AssertionError(f"{name} {'ended' if gone else 'is not healthy'}:\n{self.log(name)}")
            time.sleep(POLL_SECONDS)

    def is_healthy(self, name: str) -> bool:
        """Run the service's own health check once."""
        service = self._services[name]
        command = [self._localised(service, argument) for argument in service.healthcheck]
        check = subprocess.run(_found(command), env=_environment(service), capture_output=True, check=False)
        return check.returncode == 0

    def stop_all(self) -> dict[str, int]:
        """Ask everything to end, as Compose does, the last started first, and return the exit statuses.

        A process that ignores SIGTERM is killed, and its status says so.
        """
        statuses: dict[str, int] = {}
        while self._running:
            name, process = self._running.popitem()
            process.terminate()
            try:
                statuses[name] = process.wait(STOPS_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                statuses[name] = process.wait()
        return statuses

    def log(self, name: str) -> str:
        """Return the end of what the service wrote."""
        return self._log_path(name).read_text(encoding="utf-8", errors="replace")[-4000:]

    def _log_path(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _spawn(self, service: Service) -> subprocess.Popen[bytes]:
        self._lay_out_mounts(service)
        arguments = (*entrypoint(service), *service.command)
        command = [self._localised(service, argument) for argument in arguments]
        with self._log_path(service.name).open("wb") as log:
            return subprocess.Popen(
                _found(command), env=_environment(service), cwd=self._folder, stdout=log, stderr=log
            )

    def _local_path(self, service: Service, target: str) -> Path:
        return self._folder / service.name / target.lstrip("/")

    def _lay_out_mounts(self, service: Service) -> None:
        adapt = self._adapt.get(service.name, str)
        for mount in service.mounts:
            path = self._local_path(service, mount.target)
            if mount.source is None:
                path.mkdir(parents=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                text = adapt(mount.source.read_text(encoding="utf-8"))
                path.write_text(self._localised(service, text), encoding="utf-8")

    def _localised(self, service: Service, text: str) -> str:
        """Rewrite paths, addresses and ports of the container world to those of this machine."""
        for mount in service.mounts:
            text = re.sub(rf"(?<![\w/]){mount.target}\b", str(self._local_path(service, mount.target)), text)
        for (name, inside), port in self._ports.items():
            text = re.sub(rf"(?<![\w.-]){name}:{inside}\b", f"127.0.0.1:{port}", text)
            if name == service.name:
                text = re.sub(rf"\b(?:127\.0\.0\.1|0\.0\.0\.0):{inside}\b", f"127.0.0.1:{port}", text)
                text = re.sub(rf"\bport(: |=){inside}\b", rf"port\g<1>{port}", text)
        return text.replace("0.0.0.0", "127.0.0.1")


def _found(command: list[str]) -> list[str]:
    """Replace the program by the same one here: a container has another PATH."""
    program, *arguments = command
    if program in ("python3", "prefix-router"):
        module = ["-m", "prefix_router"] if program == "prefix-router" else []
        return [sys.executable, *module, *arguments]
    return [tool(program), *arguments]


def _environment(service: Service) -> dict[str, str]:
    """Only what the service is given, and what this Python needs to find the package."""
    return {"PATH": os.defpath, "PYTHONPATH": str(ROOT), **service.environment}


def _free_ports(keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Choose a free port for each key: all are held until all are chosen, so that they differ."""
    with ExitStack() as stack:
        ports: dict[tuple[str, int], int] = {}
        for key in keys:
            holder = stack.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports[key] = holder.getsockname()[1]
        return ports
