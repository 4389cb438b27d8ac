"""`prefix-router simulate`: run every combination, print a table, write what was asked for."""

from __future__ import annotations

import json
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.fleetsim.command.arguments import read_arguments
from prefix_router.fleetsim.command.events import EventError
from prefix_router.fleetsim.command.progress import ProgressBar
from prefix_router.fleetsim.command.runs import Run, run_all
from prefix_router.fleetsim.command.scenario import prepare
from prefix_router.fleetsim.command.table import Row, as_table
from prefix_router.fleetsim.report.page import as_page
from prefix_router.fleetsim.traces import TraceError

if TYPE_CHECKING:
    import argparse

    from prefix_router.fleetsim.command.comparison import Comparison
    from prefix_router.fleetsim.command.scenario import Facts
    from prefix_router.fleetsim.command.sources import Source

EXIT_FAILED = 1
EXIT_USAGE = 2


class _OutputError(Exception):
    """A file that was asked for cannot be written."""


def run(arguments: argparse.Namespace) -> int:
    """Run the simulations and return the exit status: 2 for what cannot be used, 1 for what went wrong."""
    try:
        _compare(read_arguments(arguments))
    except (EventError, TraceError) as error:
        _say(str(error))
        return EXIT_USAGE
    except BrokenProcessPool:
        _say("a process was killed; where memory is short, --jobs 1 or fewer --requests need less")
        return EXIT_FAILED
    except _OutputError as error:
        _say(str(error))
        return EXIT_FAILED
    return 0


def _compare(comparison: Comparison) -> None:
    """Run one workload after the other; each one's table is printed when it is there."""
    rows: list[Row] = []
    known: list[Facts] = []
    with ProgressBar(sys.stderr) as bar:
        for number, source in enumerate(comparison.sources):
            facts, own_rows = _run_source(comparison, source, number, bar)
            bar.clear()
            print(("\n" if rows else "") + as_table(facts, own_rows), flush=True)
            known.append(facts)
            rows += own_rows
    if comparison.json_file is not None:
        _write(comparison.json_file, json.dumps(rows, indent=2) + "\n")
    if comparison.report_file is not None:
        _write(comparison.report_file, as_page(comparison, known, rows))


def _run_source(
    comparison: Comparison, source: Source, number: int, bar: ProgressBar
) -> tuple[Facts, list[Row]]:
    def progress(share: float) -> None:
        bar.show((number + share) / len(comparison.sources), source.label)

    progress(0.0)
    scenario = prepare(source, comparison)
    runs = [
        Run(comparison.plan(contender), load, contender.label)
        for load in comparison.loads
        for contender in comparison.contenders
    ]
    return scenario.facts, run_all(scenario, runs, comparison.jobs, progress)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _OutputError(f"{file} cannot be written: {error.strerror}") from None


def _say(what: str) -> None:
    print(f"prefix-router simulate: {what}", file=sys.stderr, flush=True)
