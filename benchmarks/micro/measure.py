"""Measures subjects, each in a process of its own: times as they are, instructions under callgrind.

Times on a shared machine vary by tens of percent from run to run, instruction counts by a fraction of one. So
counts say whether the code does more than before, times what that costs. Callgrind is asked to write its
count down at each call of one C function that `worker` uses as its mark: what lies between two marks is a run
or two, and nothing of the interpreter's start or of the preparations. One run is the difference between
two runs and one, so what marks cost cancels out.

Hash seeds are fixed: which strings of a set collide is part of the count.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.micro.history import Measured

MARK = "getppid"
"""The C function behind `worker.mark`."""

_DUMPS_OF_A_CASE = 3
_NO_TIMES: tuple[float | None, float | None] = (None, None)
_ROOT = Path(__file__).parents[2]
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


def can_count() -> bool:
    """Whether valgrind is there."""
    return shutil.which("valgrind") is not None


def times(subject: str) -> dict[str, tuple[float, float]]:
    """Return median and best nanoseconds of an operation for each case. Raises CalledProcessError."""
    taken = _worker([], "time", subject)
    return {name: (round(median, 1), round(best, 1)) for name, (median, best) in taken.items()}


def instructions(subject: str) -> dict[str, float]:
    """Return instructions of an operation for each case. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as directory:
        dump = Path(directory) / "dump"
        command = ["valgrind", "--tool=callgrind", "--dump-line=no", f"--dump-before={MARK}"]
        command += [f"--callgrind-out-file={dump}", f"--log-file={directory}/log"]
        operations = _worker(command, "count", subject)
        totals = [
            total_of(dump.with_suffix(f".{number + 1}").read_text())
            for number in range(_DUMPS_OF_A_CASE * len(operations))
        ]
    return per_operation(operations, totals)


def total_of(dump: str) -> int:
    """Return the instructions of one of callgrind's files. Raises ValueError where none are named."""
    found = _TOTAL.search(dump)
    if found is None:
        raise ValueError("not a file of callgrind's: it names no total")
    return int(found[1])


def per_operation(operations: Mapping[str, int], totals: Sequence[int]) -> dict[str, float]:
    """Return instructions of an operation for each case.

    totals: three for each case, in order: what came before its first mark, one run, two runs.
    """
    ones, twos = totals[1::_DUMPS_OF_A_CASE], totals[2::_DUMPS_OF_A_CASE]
    return {
        name: round((two - one) / count, 1)
        for (name, count), one, two in zip(operations.items(), ones, twos, strict=True)
    }


def measured(subject: str, *, with_times: bool, with_instructions: bool) -> dict[str, Measured]:
    """Return what was measured of a subject, by `subject/case`."""
    taken = times(subject) if with_times else {}
    counted = instructions(subject) if with_instructions else {}
    return {
        f"{subject}/{name}": Measured(*taken.get(name, _NO_TIMES), counted.get(name))
        for name in taken or counted
    }


def _worker(prefix: Sequence[str], mode: str, subject: str) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-m", "benchmarks.micro.worker", mode, subject]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
