"""`prefix-router top`: a live view on a terminal, one plain snapshot anywhere else.

The alternate screen is used and always given back, with the terminal's modes. A window that changes its size
is drawn anew within `_LOOK_SECONDS`. Exit status: 0, or 1 when the router cannot be reached at the start.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prefix_router.top.source import NotReachedError, Source
from prefix_router.top.view import Screen, Sort, lines, visible_rows

_LOOK_SECONDS: Final = 0.25
_MIN_INTERVAL_SECONDS: Final = 0.2
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_STEPS: Final = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1}
_PAGES: Final = {"\x1b[5~": -1, "\x1b[6~": 1, " ": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--url", default="http://127.0.0.1:9090", help="of the admin listener (%(default)s)")
    parser.add_argument("--token-file", metavar="FILE", help="file with the admin token")
    parser.add_argument(
        "--interval", type=_interval, default=2.0, metavar="SECONDS", help="between two looks (%(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="print one snapshot")
    parser.add_argument("--json", action="store_true", help="print one snapshot as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Show it until q is pressed; return the exit status."""
    try:
        token = Path(arguments.token_file).read_text().strip() if arguments.token_file else None
        source = Source(arguments.url, token)
        status, history = source.read()
    except (NotReachedError, OSError, UnicodeDecodeError) as error:
        print(f"prefix-router top: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"status": status, "history": history}))
    elif arguments.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("\n".join(lines(status, history, Screen(width=shutil.get_terminal_size((100, 24)).columns))))
    else:
        _live(source, status, history, arguments.interval)
    return 0


def pressed(keys: str, screen: Screen, count: int) -> Screen | None:
    """Return the screen after some keys, None to quit. count: how many backends there are."""
    if "q" in keys or "\x03" in keys:
        return None
    page = max(visible_rows(screen.height), 1)
    first = screen.first + _STEPS.get(keys, 0) + page * _PAGES.get(keys, 0)
    sort = next((sort for sort in Sort if sort.value == keys), screen.sort)
    return replace(screen, sort=sort, first=max(min(first, count - page), 0))


def _live(source: Source, status: dict[str, Any], history: dict[str, Any], interval: float) -> None:
    screen, due = Screen(colour="NO_COLOR" not in os.environ), time.monotonic() + interval
    descriptor = sys.stdin.fileno()
    with _whole_terminal(descriptor):
        while True:
            size = shutil.get_terminal_size()
            screen = replace(screen, width=size.columns, height=size.lines)
            text = "\x1b[K\r\n".join(lines(status, history, screen))
            sys.stdout.write(f"\x1b[H{text}\x1b[K\x1b[J")
            sys.stdout.flush()
            if select.select([descriptor], [], [], min(max(due - time.monotonic(), 0), _LOOK_SECONDS))[0]:
                read = os.read(descriptor, 64).decode("ascii", "replace")
                after = pressed(read, screen, len(status["backends"])) if read else None
                if after is None:
                    return
                screen = after
            if time.monotonic() >= due:
                try:
                    status, history = source.read()
                    screen = replace(screen, trouble=None)
                except NotReachedError as error:
                    screen = replace(screen, trouble=str(error))
                due = time.monotonic() + interval


@contextmanager
def _whole_terminal(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _MIN_INTERVAL_SECONDS <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected {_MIN_INTERVAL_SECONDS} to 3600 seconds, got {text!r}")
    return seconds
