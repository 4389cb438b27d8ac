"""The process in which one subject is measured: `python -m benchmarks.micro.worker time|count SUBJECT`.

`time` prints JSON: median and best nanoseconds of an operation for each case. `count` prints the operations
of a run for each case; it is meant to run under callgrind, which writes its counts down at each `mark`.

The garbage collector rests meanwhile: when it runs depends on what was measured before.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import statistics
import sys
import time

from benchmarks.micro.case import Case, Run

WARM_UP_RUNS = 3
"""After these the interpreter has specialised what it will."""

_SAMPLES = 9
_BUDGET_NS = 300_000_000


def cases_of(subject: str) -> list[Case]:
    found: list[Case] = importlib.import_module(f"benchmarks.micro.subjects.{subject}").cases()
    return found


def warmed_up(case: Case) -> Run:
    run = case.prepare()
    for _ in range(WARM_UP_RUNS):
        run()
    gc.collect()
    gc.disable()
    return run


def nanoseconds(case: Case) -> tuple[float, float]:
    """Return median and best processor time of one operation."""
    run = warmed_up(case)
    samples: list[int] = []
    spent = 0
    while len(samples) < _SAMPLES or spent < _BUDGET_NS:
        began = time.process_time_ns()
        run()
        samples.append(time.process_time_ns() - began)
        spent += samples[-1]
    return statistics.median(samples) / case.operations, min(samples) / case.operations


def mark() -> None:
    """Call a function of the C library that nothing here calls otherwise: `instructions.MARK`."""
    os.getppid()


def count(case: Case) -> None:
    """Do one run and then two, with a mark before, between and after."""
    run = warmed_up(case)
    mark()
    run()
    mark()
    run()
    run()
    mark()


def main() -> None:
    mode, subject = sys.argv[1:]
    if mode == "time":
        print(json.dumps({case.name: nanoseconds(case) for case in cases_of(subject)}))
        return
    counted = cases_of(subject)
    for case in counted:
        count(case)
    print(json.dumps({case.name: case.operations for case in counted}))


if __name__ == "__main__":
    main()
