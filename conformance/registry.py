"""The list of cases: filled by the decorator `case`, read by the runner."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import iter_modules

import conformance.cases
from conformance.endpoints import Endpoint
from conformance.model import Capability, Case, Priority, Run, Variant
from conformance.profile import DEFAULT_PROFILE, Profile

_CASES: dict[str, Case] = {}


def case(
    id: str,  # noqa: A002  (the name of the column)
    priority: str,
    title: str,
    expectation: str,
    *,
    variants: Sequence[Variant] = (Variant(),),
    profile: Profile = DEFAULT_PROFILE,
    needs: Iterable[Capability] = (),
    disturbs: bool = False,
    fresh: bool = False,
    timeout_seconds: float = 15.0,
) -> Callable[[Run], Run]:
    """Register an `async def run(ctx) -> Evidence` as a case; see `Case` for the arguments."""

    def register(run: Run) -> Run:
        if id in _CASES:
            raise ValueError(f"case {id} exists twice")
        _CASES[id] = Case(
            id,
            Priority(priority),
            title,
            expectation,
            run,
            tuple(variants),
            profile,
            frozenset(needs),
            disturbs,
            fresh,
            timeout_seconds,
        )
        return run

    return register


def every_kind(*options: str, streaming: bool | None = None) -> tuple[Variant, ...]:
    """Return variants for every endpoint, streaming and not, times `options`.

    streaming: True or False keeps only those.
    """
    return tuple(
        Variant(endpoint, stream, option)
        for endpoint in Endpoint
        for stream in (False, True)
        if (endpoint.streams or not stream) and streaming in (None, stream)
        for option in options or ("",)
    )


def stream_and_whole(*options: str) -> tuple[Variant, ...]:
    """Return variants for chat, streaming and not, times `options`."""
    return tuple(
        Variant(Endpoint.CHAT, stream, option) for stream in (False, True) for option in options or ("",)
    )


def all_cases() -> list[Case]:
    """Import every module of `conformance.cases` and return the cases in the order of the table."""
    for module in iter_modules(conformance.cases.__path__):
        import_module(f"conformance.cases.{module.name}")
    return sorted(_CASES.values(), key=lambda found: place(found.id))


def select(
    cases: Iterable[Case], only: Sequence[str] = (), priorities: Sequence[Priority] = ()
) -> list[Case]:
    """Return the cases whose id matches one of the patterns `only` (`A1`, `B*`) and one of `priorities`."""
    return [
        found
        for found in cases
        if (not only or any(fnmatchcase(found.id, pattern) for pattern in only))
        and (not priorities or found.priority in priorities)
    ]


def place(case_id: str) -> tuple[str, int, str]:
    """Return what ids are sorted by: A2 before A10."""
    match = re.fullmatch(r"([A-Z]+)(\d+)(.*)", case_id)
    if match is None:
        raise ValueError(f"case id {case_id!r} is not a letter and a number")
    return match[1], int(match[2]), match[3]
