"""The union of what all sources know. Pure.

Names and URLs are unique in a fleet. Where two sources know the same one, the first in the order of
`SourceName` wins: what an operator wrote down outranks what was found. O(backends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prefix_router.discovery.source import Found, SourceName

MAX_BACKENDS = 1024
"""Backends of a fleet with discovery. More than any router should have: a wrong selector, or a wrong name."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A backend that is left out. what: `name` or `url`, whichever is taken; "" for a fleet that is full."""

    source: SourceName
    name: str
    what: str
    taken_by: SourceName

    def __str__(self) -> str:
        if not self.what:
            return f"the fleet is full with {MAX_BACKENDS} backends: those found further on are left out"
        return (
            f"{self.name}, found by {self.source.value}, is left out: "
            f"its {self.what} is that of a backend of {self.taken_by.value}"
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """The union, in the order of the sources, and who is not in it."""

    backends: tuple[tuple[SourceName, Found], ...]
    clashes: frozenset[Clash]


def merge(sets: Mapping[SourceName, Iterable[Found]]) -> Merged:
    """Return the union of `sets`; at most `MAX_BACKENDS`, those of static not counted out."""
    names: dict[str, SourceName] = {}
    urls: dict[str, SourceName] = {}
    union: list[tuple[SourceName, Found]] = []
    clashes: set[Clash] = set()
    for source in SourceName:
        for found in sets.get(source, ()):
            if found.name in names:
                clashes.add(Clash(source, found.name, "name", names[found.name]))
            elif found.url in urls:
                clashes.add(Clash(source, found.name, "url", urls[found.url]))
            elif len(union) >= MAX_BACKENDS and source is not SourceName.STATIC:
                clashes.add(Clash(source, "", "", source))
            else:
                names[found.name] = urls[found.url] = source
                union.append((source, found))
    return Merged(tuple(union), frozenset(clashes))
