"""One router in front of the backend under one load after the other."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

import psutil

from benchmarks.dataplane.loads import Generators, Load, LoadError
from benchmarks.dataplane.processes import Cores, cpu_seconds, memory_mb, start, stop
from benchmarks.dataplane.routers import DIRECT, Place, Router
from benchmarks.dataplane.wire import PATH, UNFINISHED, bodies
from benchmarks.dataplane.workloads import SMALL_BYTES, Workload, write_files
from benchmarks.support.machine import free_port

BACKENDS = 4
WARM_UP_SECONDS = 1
_READY_SECONDS = 120.0
_SETTLE_SECONDS = 30.0
_AT_MOST_CONNECTIONS_WARM = 256


class StartError(Exception):
    """A process did not come up. The text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One router under one load in one round.

    cpu_us: the router's own CPU time per request; None without a router, and where so many requests were not
    finished that it would say nothing. memory_mb: after the load.
    base_p50_us, base_p99_us: of the same load straight to the backend, None until that is known.
    failure: why there is no measurement, empty when there is one.
    """

    round: int
    router: str
    workload: str
    load: Load | None = None
    cpu_us: float | None = None
    memory_mb: float | None = None
    base_p50_us: float | None = None
    base_p99_us: float | None = None
    base_first_p50_us: float | None = None
    failure: str = ""


@contextmanager
def backend(cores: Cores) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Run the backend, and give the id of its process and the ports that it listens on."""
    ports = tuple(free_port() for _ in range(BACKENDS))
    command = [sys.executable, "-m", "benchmarks.dataplane.backend", *map(str, ports)]
    process = start(command, cores.backend)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "listening\n":
            raise StartError("the backend did not start")
        yield process.pid, ports
    finally:
        stop(process)


@contextmanager
def running(command: list[str], port: int, cores: frozenset[int], log: Path) -> Iterator[int]:
    """Run a router until the end of the block, and give the id of its process. Raises StartError."""
    process = start(command, cores, log=log)
    try:
        _wait_ready(process, port, log)
        yield process.pid
    finally:
        stop(process)


def _wait_ready(process: subprocess.Popen[str], port: int, log: Path) -> None:
    body = bodies(SMALL_BYTES, 1)[0]
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{PATH}", data=body, headers={"Content-Type": "application/json"}
    )
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                answer.read()
                return
        except (OSError, HTTPException):
            time.sleep(0.2)
    raise StartError(log.read_text(errors="replace")[-2000:])


class Bench:
    """Measures with one backend."""

    def __init__(
        self,
        cores: Cores,
        backend_pid: int,
        backend_ports: tuple[int, ...],
        folder: Path,
        seconds: int,
        say: Callable[[Sample], None],
    ) -> None:
        """folder: for files. seconds: of one measurement. say: told of every result."""
        self._cores = cores
        self._backend_pid = backend_pid
        self._backend_ports = backend_ports
        self._files = write_files(folder)
        self._folder = folder
        self._seconds = seconds
        self._say = say
        self._generators = Generators(cores)

    def _place(self) -> Place:
        """Return a place for a router that starts now."""
        urls = tuple(f"http://127.0.0.1:{port}" for port in self._backend_ports)
        port = free_port()
        folder = self._folder / f"router-{port}"
        folder.mkdir()
        return Place(port, free_port(), urls, folder)

    def direct(self, number: int, workloads: Sequence[Workload]) -> list[Sample]:
        """Measure the backend alone under all loads but paced ones."""
        samples = []
        self._generators.beside = [self._backend_pid]
        for workload in workloads:
            if not workload.paced:
                load = self._load(self._backend_ports[0], workload)
                samples.append(self._said(Sample(number, DIRECT, workload.name, load)))
        return samples

    def router(self, number: int, router: Router, workloads: Sequence[Workload]) -> list[Sample]:
        """Start a router, measure it under all loads, and stop it."""
        place = self._place()
        samples: list[Sample] = []
        try:
            with running(router.command(place), place.port, self._cores.router, place.folder / "log") as pid:
                self._generators.beside = [self._backend_pid, pid]
                for workload in workloads:
                    limit = next((s.load for s in samples if s.workload == "small"), None)
                    sample = self._one(number, router, pid, place.port, workload, limit)
                    samples.append(self._said(sample))
        except StartError as error:
            samples += [
                self._said(Sample(number, router.name, workload.name, failure=f"it did not start: {error}"))
                for workload in workloads
            ]
        return samples

    def _one(
        self, number: int, router: Router, pid: int, port: int, workload: Workload, limit: Load | None
    ) -> Sample:
        sample = Sample(number, router.name, workload.name)
        try:
            pause_ms = None
            if workload.paced:
                if limit is None or not limit.requests:
                    return replace(sample, failure="the rate of the load `small` is not known")
                pause_ms = pause_for(limit.requests / limit.seconds / 2, workload.connections)
                base = self._load(self._backend_ports[0], workload, pause_ms=pause_ms)
                sample = replace(sample, base_p50_us=base.p50_us, base_p99_us=base.p99_us)
            self._load(port, workload, warm_up=True, texts=router.texts, pause_ms=pause_ms)
            before = cpu_seconds(pid)
            load = self._load(port, workload, texts=router.texts, pause_ms=pause_ms)
            spent = cpu_seconds(pid) - before
            unfinished = load.kinds_of_errors.get(UNFINISHED, 0)
            cpu_us = spent / load.requests * 1e6 if load.requests > 20 * unfinished else None
            if unfinished:
                settle(pid)
            return replace(sample, load=load, cpu_us=cpu_us, memory_mb=memory_mb(pid))
        except LoadError as error:
            return replace(sample, failure=str(error))
        except psutil.Error:
            return replace(sample, failure="the router has ended")

    def _load(
        self,
        port: int,
        workload: Workload,
        *,
        warm_up: bool = False,
        texts: bool = False,
        pause_ms: float | None = None,
    ) -> Load:
        seconds = WARM_UP_SECONDS if warm_up else self._seconds
        requests = self._files[workload.requests]
        if not workload.streams:
            return self._generators.wrk(port, requests, workload.connections, seconds, pause_ms)
        every = 1 if warm_up else workload.every
        with urllib.request.urlopen(f"http://127.0.0.1:{self._backend_ports[0]}/-/every/{every}") as answer:
            answer.read()
        connections = (
            min(workload.connections, _AT_MOST_CONNECTIONS_WARM) if warm_up else workload.connections
        )
        return self._generators.client(port, requests, connections, seconds, texts=texts)

    def _said(self, sample: Sample) -> Sample:
        self._say(sample)
        return sample


def settle(pid: int) -> None:
    """Give a router that was left with unfinished requests time to be done with them."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(0.5)
        if cpu_seconds(pid) - before < 0.05:
            return


def pause_for(rate_per_second: float, connections: int) -> float:
    """Return the mean pause (ms) of each connection that makes `rate_per_second` in all.

    A request itself takes about half a millisecond; the rate that was reached is the one to report.
    """
    return max(0.0, connections / rate_per_second * 1000 - 0.5)
