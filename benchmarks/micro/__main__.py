"""Nanoseconds and instructions of what every request passes through, kept and compared over time.

    python -m benchmarks.micro                       measure, add to the history, compare with the run before
    python -m benchmarks.micro --only key sse        measure these subjects, keep nothing
    python -m benchmarks.micro --compare [REVISION]  the latest run in the history against the one before, or
                                                     against the latest of that revision
    python -m benchmarks.micro --check               count again; exit status 1 when the instructions of a
                                                     benchmark grew by more than 10% over the latest run

Instructions need valgrind; without it there are times only. Times are of the processor, without garbage
collection. About three minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.micro.comparison import (
    caution,
    comparison_table,
    described,
    grown,
    results_table,
)
from benchmarks.micro.history import Run, UnknownRevisionError, append, load, of_revision, run_here
from benchmarks.micro.measure import can_count, measured
from benchmarks.micro.subjects import SUBJECTS

RESULTS = Path(__file__).parents[1] / "results"
HISTORY = RESULTS / "micro.jsonl"
REPORT = RESULTS / "micro.md"

HEADING = """\
# Micro-benchmarks

    make bench-micro

{described}. For one operation each: processor time, and
instructions counted by callgrind. Times vary on a shared machine, counts hardly. Older runs are in
`micro.jsonl`; `python -m benchmarks.micro --compare [REVISION]` puts two of them side by side.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, metavar="SUBJECT", help=", ".join(SUBJECTS))
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--compare", nargs="?", const="", metavar="REVISION")
    modes.add_argument("--check", action="store_true")
    options = parser.parse_args()
    runs = load(HISTORY)
    if options.compare is not None:
        return compare(runs, options.compare)
    if options.check:
        return check(runs, options.only or SUBJECTS)
    run = measure(options.only or SUBJECTS, with_times=True)
    print(results_table(run))
    if not options.only:
        keep(run)
        compare([*runs, run], "")
    return 0


def measure(subjects: Sequence[str], *, with_times: bool) -> Run:
    """Measure subjects; say on standard error what goes on."""
    counting = can_count()
    if not counting:
        print("valgrind is not installed: times only", file=sys.stderr)
    results = {}
    for subject in subjects:
        print(f"measuring: {subject}", file=sys.stderr)
        results.update(measured(subject, with_times=with_times, with_instructions=counting))
    return run_here(results)


def keep(run: Run) -> None:
    """Add a run to the history, and make it the report."""
    append(HISTORY, run)
    REPORT.write_text(f"{HEADING.format(described=described(run))}\n{results_table(run)}\n")


def compare(runs: Sequence[Run], revision: str) -> int:
    """Print the latest run against the one before, or against the newest one of a revision."""
    try:
        if len(runs) < 2:
            print("one run more is needed to compare")
            return 0
        before = of_revision(runs[:-1], revision) if revision else runs[-2]
    except UnknownRevisionError as error:
        print(error, file=sys.stderr)
        return 2
    after = runs[-1]
    print(f"\nbefore: {described(before)}\nafter:  {described(after)}\n{caution(before, after)}\n")
    print(comparison_table(before, after))
    return 0


def check(runs: Sequence[Run], subjects: Sequence[str]) -> int:
    """Count now and compare with the latest run of the history; return the exit status."""
    if not runs or not can_count():
        print("a check needs a run in the history, and valgrind", file=sys.stderr)
        return 2
    run = measure(subjects, with_times=False)
    print(f"against {described(runs[-1])}\n{caution(runs[-1], run)}")
    found = grown(runs[-1], run)
    for name, growth in found.items():
        print(f"{name}: {growth:+.1%} instructions")
    print(f"{len(found)} of {len(run.results)} benchmarks grew by more than is allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
