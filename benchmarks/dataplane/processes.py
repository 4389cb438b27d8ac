"""Processes that are pinned to a core, and what the system says of their CPU time and memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores each role is pinned to."""

    router: frozenset[int]
    load: frozenset[int]
    backend: frozenset[int]

    @classmethod
    def of(cls, available: Sequence[int], for_router: int = 1) -> Cores:
        """Share out the cores: some for the router, one for the load, one for the backend.

        Where they do not suffice, load and backend share one; where even that is not there, all share all.
        Raises ValueError when there is only one core.
        """
        if len(available) < 2:
            raise ValueError("the benchmark needs two cores: one for the router, one for the load")
        if len(available) <= for_router:
            everything = frozenset(available)
            return cls(everything, everything, everything)
        load, backend, *_ = (*available[: len(available) - for_router], available[0])
        return cls(frozenset(available[-for_router:]), frozenset({load}), frozenset({backend}))

    @property
    def shared(self) -> bool:
        """Whether the router shares its cores with the load."""
        return bool(self.router & self.load)


def start(
    command: Sequence[str],
    cores: frozenset[int],
    *,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a command on these cores; its children inherit them.

    log: file for its output; without one, standard output is a pipe.
    """
    output = subprocess.PIPE if log is None else log.open("w")
    try:
        return subprocess.Popen(
            ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if log is None else subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    finally:
        if not isinstance(output, int):
            output.close()


def stop(process: subprocess.Popen[str]) -> None:
    """End a process, kindly first, and its children with it."""
    children = tree(process.pid)[1:]
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it, none when it has ended."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its living descendants."""
    return sum(sum(process.cpu_times()[:2]) for process in tree(pid))


def memory_mb(pid: int) -> float:
    """Return the proportional share of memory (PSS) of a process and its descendants, in MB."""
    return float(sum(process.memory_full_info().pss for process in tree(pid))) / 1e6


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy cores were, as shares of the time.

    router, load: the router's cores; the busier ones of load generator and backend. others: what programs
    that have no part in the measurement used of all of these, in cores.
    """

    router: float
    load: float
    others: float


class CoreWatch:
    """How busy the cores are from now on, and who uses them."""

    def __init__(self, cores: Cores, taking_part: Sequence[int]) -> None:
        """taking_part: ids of the processes whose work the benchmark is."""
        self._cores = cores
        self._taking_part = taking_part
        self._before = psutil.cpu_times(percpu=True)
        self._spent_before = self._spent()
        self._began = time.monotonic()

    def _spent(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._taking_part)

    def busy(self) -> Busy:
        """Return how busy they have been."""
        elapsed = time.monotonic() - self._began
        spent = self._spent() - self._spent_before
        after = psutil.cpu_times(percpu=True)

        def share(core: int) -> float:
            passed = [new - old for new, old in zip(after[core], self._before[core], strict=True)]
            fields = dict(zip(after[core]._fields, passed, strict=True))
            total = sum(fields.values()) - fields["guest"] - fields["guest_nice"]
            return 1 - (fields["idle"] + fields["iowait"]) / total if total else 0.0

        def mean(cores: frozenset[int]) -> float:
            return sum(map(share, cores)) / len(cores)

        cores = self._cores
        in_all = sum(map(share, cores.router | cores.load | cores.backend))
        return Busy(
            round(mean(cores.router), 3),
            round(max(mean(cores.load), mean(cores.backend)), 3),
            round(max(0.0, in_all - spent / elapsed), 3),
        )
