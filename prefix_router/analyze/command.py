"""`prefix-router analyze`: read, simulate, print; write what was asked for."""

from __future__ import annotations

import json
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.analyze.arguments import read_arguments
from prefix_router.analyze.document import as_document
from prefix_router.analyze.page import as_page
from prefix_router.analyze.reading import InputError
from prefix_router.analyze.study import study
from prefix_router.analyze.text import as_text
from prefix_router.fleetsim.command.progress import ProgressBar

if TYPE_CHECKING:
    import argparse

EXIT_FAILED = 1
EXIT_USAGE = 2


class _OutputError(Exception):
    """A file that was asked for cannot be written."""


def run(arguments: argparse.Namespace) -> int:
    """Analyze and return the exit status: 2 for what cannot be used, 1 for what went wrong."""
    try:
        with ProgressBar(sys.stderr) as bar:
            analysis = study(read_arguments(arguments), lambda what, share: bar.show(share, what))
    except InputError as error:
        _say(str(error))
        return EXIT_USAGE
    except BrokenProcessPool:
        _say("a process was killed; where memory is short, --jobs 1 or fewer --requests need less")
        return EXIT_FAILED
    print(as_text(analysis), flush=True)
    try:
        if arguments.json is not None:
            _write(arguments.json, json.dumps(as_document(analysis), indent=2) + "\n")
        if arguments.report is not None:
            _write(arguments.report, as_page(analysis))
    except _OutputError as error:
        _say(str(error))
        return EXIT_FAILED
    return 0


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _OutputError(f"{file} cannot be written: {error.strerror}") from None


def _say(what: str) -> None:
    print(f"prefix-router analyze: {what}", file=sys.stderr, flush=True)
