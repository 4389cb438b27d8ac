"""Shell completion, made from the parsers themselves, so that it never lags behind them."""

from __future__ import annotations

import argparse
from typing import Any, Final

import shtab

from prefix_router.settings.fields import choices_of, leaves

SHELLS: Final = ("bash", "zsh", "tcsh")

_FILES: Final = frozenset({"FILE", "FILE.html", "PATH", "PROGRAM", "REQUEST"})
"""How the help writes what is the path of a file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.add_argument("shell", choices=SHELLS, help="whose completion to print")


def run(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script that completes what `parser` takes."""
    _tell_more(parser, {field.path: choices_of(field.annotation) for field in leaves()})
    print(shtab.complete(parser, shell))
    return 0


def _tell_more(parser: argparse.ArgumentParser, choices: dict[str, tuple[str, ...]]) -> None:
    """Say of each argument what the parser leaves to others: files, and the closed sets of settings."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _tell_more(child, choices)
        elif action.metavar in _FILES:
            marked: Any = action  # shtab looks for the attribute
            marked.complete = shtab.FILE
        elif action.choices is None and choices.get(action.dest):
            action.choices = choices[action.dest]
