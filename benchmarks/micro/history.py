"""The history of results: one line of JSON for each run, newest last."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

_ROOT = Path(__file__).parents[2]
_LEAST_DIGITS = 4


class Measured(msgspec.Struct, frozen=True):
    """One operation: median and best processor time in nanoseconds, instructions; None: not measured."""

    median_ns: float | None
    best_ns: float | None
    instructions: float | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmarks.

    date: UTC, ISO 8601. revision: of git, with `+` when the router had changes on top. results: by
    `subject/case`.
    """

    date: str
    revision: str
    python: str
    cpu: str
    results: dict[str, Measured]


class UnknownRevisionError(Exception):
    """There is no run of that revision in the history."""


def load(path: Path) -> list[Run]:
    """Return the runs of a history file, none when it does not exist. Raises msgspec.DecodeError."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Run) for line in path.read_bytes().splitlines()]


def append(path: Path, run: Run) -> None:
    """Add a run to a history file."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


def of_revision(runs: Sequence[Run], revision: str) -> Run:
    """Return the newest run of a revision, which may be shortened or longer than what is stored.

    Raises UnknownRevisionError, also for fewer than four digits.
    """
    for run in reversed(runs):
        stored = run.revision.removesuffix("+")
        if len(revision) >= _LEAST_DIGITS and (stored.startswith(revision) or revision.startswith(stored)):
            return run
    raise UnknownRevisionError(f"no run of revision {revision} in the history")


def run_here(results: dict[str, Measured]) -> Run:
    """Return a run of now, on this machine and of this working tree."""
    return Run(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=_revision(),
        python=platform.python_version(),
        cpu=_cpu(),
        results=results,
    )


def _revision() -> str:
    changes = _git("status", "--porcelain", "--", "prefix_router")
    return _git("rev-parse", "--short", "HEAD") + ("+" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    return subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
