"""Mistakes in a configuration: where they stand and how they are told.

A `Problem` is one line for the operator, in the form that editors and terminals make clickable:
`config/x.yaml:12: routing.prefix.length: expected a whole number from 1 to 1048576, got 0`. They are
collected, never raised one by one: `SettingsError` carries all of them, because a configuration that
is mended one mistake per restart costs an outage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND_LINE = "command line"
"""The source of settings that come from flags."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake.

    source: the file, or "command line". line: counted from 1, or None where there is none.
    path: the dotted path of the setting, the name of the flag, or "" for the source as a whole.
    """

    source: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a line of a file, or a flag of the command line."""

    source: str
    line: int | None = None
    flag: str | None = None

    def problem(self, path: str, message: str) -> Problem:
        """A problem here; a flag is called by its own name, which is what the operator typed."""
        return Problem(self.source, self.line, self.flag or path, message)

    def __str__(self) -> str:
        if self.flag is not None:
            return self.flag
        return self.source if self.line is None else f"line {self.line}"


class SettingsError(Exception):
    """A configuration with mistakes. Nothing may be started from it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=_reading_order))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _reading_order(problem: Problem) -> tuple[bool, int]:
    """Files before the command line, and a file from top to bottom. Equal places keep their order."""
    return problem.source == COMMAND_LINE, problem.line or 0


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the known word nearest to `word`, or nothing when none is near."""
    from difflib import get_close_matches  # only a mistake pays for it

    near = get_close_matches(word.lower().replace("-", "_"), tuple(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
