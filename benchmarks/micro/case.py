"""One thing to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import TypeVar

_Argument = TypeVar("_Argument")

Run = Callable[[], object]
"""Does the operations of a case once. Any number of runs may follow one another, each like the one before."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    operations: how many of them a run does; enough for about a millisecond. prepare: builds what is needed,
    unmeasured, and returns the run.
    """

    name: str
    operations: int
    prepare: Callable[[], Run]


def again(call: Callable[[], object], times: int) -> Run:
    """Return a run that calls `call` so many times."""

    def run() -> None:
        for _ in repeat(None, times):
            call()

    return run


def each(call: Callable[[_Argument], object], arguments: Iterable[_Argument]) -> Run:
    """Return a run that calls `call` with each argument."""
    kept = tuple(arguments)

    def run() -> None:
        for argument in kept:
            call(argument)

    return run
