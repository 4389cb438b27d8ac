"""Runs one load generator once and returns what it counted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.dataplane.processes import Busy, Cores, CoreWatch, start
from benchmarks.dataplane.routers import tool
from benchmarks.dataplane.wire import PATH

GRACE_SECONDS = 15
_SETTLED_SECONDS = 0.8
"""From the start of a generator until all its connections are at work."""
_SCRIPT = Path(__file__).parent / "load.lua"
_WRK_ERRORS = ("connect", "read", "write", "timeout", "status")


class LoadError(Exception):
    """The load generator did not do its work. The text is its output."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a load generator counted. Latencies in microseconds, `first` ones until the first event."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: int
    kinds_of_errors: dict[str, int] = field(default_factory=dict)
    first_p50_us: float | None = None
    first_p99_us: float | None = None
    busy: Busy = field(default_factory=lambda: Busy(0.0, 0.0, 0.0))


def parse_wrk(output: str) -> Load:
    """Read the line that `load.lua` prints. Raises LoadError when it is not there."""
    for line in output.splitlines():
        if line.startswith("JSON "):
            found = json.loads(line.removeprefix("JSON "))
            kinds = {name: found[name] for name in _WRK_ERRORS if found[name]}
            return Load(
                found["requests"] - found["status"],
                found["microseconds"] / 1e6,
                found["p50_us"],
                found["p99_us"],
                sum(kinds.values()),
                kinds,
            )
    raise LoadError(f"wrk printed no result:\n{output}")


def parse_client(output: str) -> Load:
    """Read the last line of `client.py`. Raises LoadError when it is no account."""
    lines = output.splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise LoadError(f"the client printed no result:\n{output}") from None
    found.pop("streams")
    return Load(**found)


class Generators:
    """Starts load generators. beside: ids of the processes that do the rest of the work."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self.beside: list[int] = []

    def wrk(
        self, port: int, requests: Path, connections: int, seconds: int, pause_ms: float | None = None
    ) -> Load:
        """Let wrk send requests. pause_ms: mean of the pauses that each connection makes; None: none."""
        command = [tool("wrk"), "--threads", "1", "--connections", str(connections)]
        command += ["--duration", f"{seconds}s", "--timeout", "30s", "--script", str(_SCRIPT)]
        command += [f"http://127.0.0.1:{port}{PATH}"]
        environment = {"REQUESTS": str(requests)}
        if pause_ms is not None:
            environment["MEAN_PAUSE_MS"] = f"{pause_ms:.3f}"
        return self._watched(command, seconds, environment, parse_wrk)

    def client(self, port: int, requests: Path, connections: int, seconds: int, *, texts: bool) -> Load:
        """Let our own client send requests. texts: whether only the texts in events are compared."""
        command = [sys.executable, "-m", "benchmarks.dataplane.client", str(port), str(requests)]
        command += ["--connections", str(connections), "--seconds", str(seconds)]
        command += ["--grace", str(GRACE_SECONDS), *(["--texts"] if texts else [])]
        return self._watched(command, seconds, {}, parse_client)

    def _watched(
        self, command: list[str], seconds: int, environment: dict[str, str], parse: Callable[[str], Load]
    ) -> Load:
        """Run a generator, and see how busy the cores are while it is in full swing."""
        process = start(command, self._cores.load, environment=environment)
        try:
            time.sleep(_SETTLED_SECONDS)
            watch = CoreWatch(self._cores, [process.pid, *self.beside])
            time.sleep(max(0.1, seconds - _SETTLED_SECONDS - 0.1))
            busy = watch.busy()
            output, _ = process.communicate(timeout=seconds + 3 * GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            raise LoadError(f"{command[0]} did not end") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise LoadError(f"{command[0]} ended with {process.returncode}:\n{output}")
        return replace(parse(output), busy=busy)
