"""From a tree of nodes to typed settings, value by value, so that one mistake does not hide the next.

msgspec judges each single value against its annotation; it stops at the first mistake of a whole struct,
which is why the walk over structs is here. A value that is wrong is reported and its default stands in
for it, so that the rules over several settings can still be checked; `Draft.is_sound` tells them which
values are real. Never raises for a mistake of the operator: all of them end up in `Draft.problems`.
O(nodes).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec import NODEFAULT, Struct, structs

from prefix_router.settings.backend_url import BackendUrlError, parse_backend_url
from prefix_router.settings.document import Mapping, Node, Scalar, Sequence, Unusable, plain_value
from prefix_router.settings.fields import (
    Annotation,
    choices_of,
    expectation,
    item_of,
    leaves,
    section_of,
)
from prefix_router.settings.model import BackendSettings, Settings
from prefix_router.settings.problems import Origin, Problem, did_you_mean
from prefix_router.settings.secrets import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

Readable: TypeAlias = Scalar | Sequence | Mapping

_WRONG: Final = object()
"""Stands for a value that was reported."""


@dataclass(slots=True)
class Draft:
    """Settings on their way: what was read, what is wrong with it, and where each value stands.

    backend_paths: the dotted path of each of `settings.backends`; those that are wrong are left out.
    """

    settings: Settings
    problems: list[Problem]
    backend_paths: tuple[str, ...]
    origins: dict[str, Origin]
    wrong: set[str]

    def is_given(self, path: str) -> bool:
        """Whether the value at `path` was written by the operator."""
        return path in self.origins

    def is_sound(self, path: str) -> bool:
        """Whether neither the value at `path`, nor what holds it, nor anything in it is wrong."""
        return not any(_holds(path, wrong) or _holds(wrong, path) for wrong in self.wrong)

    def origin(self, path: str) -> Origin:
        """Where the value at `path` stands, or else what holds it."""
        while path not in self.origins:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.origins[path]


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def convert(root: Mapping) -> Draft:
    """Convert a whole tree."""
    conversion = _Conversion()
    return Draft(
        settings=cast("Settings", conversion.section(Settings, root, "")),
        problems=conversion.problems,
        backend_paths=tuple(conversion.backend_paths),
        origins=conversion.origins,
        wrong=conversion.wrong,
    )


class _Conversion:
    """One walk over one tree."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.backend_paths: list[str] = []
        self.origins: dict[str, Origin] = {}
        self.wrong: set[str] = set()

    def section(self, cls: type[Struct], node: Mapping, path: str) -> Struct | object:
        """Convert a mapping; `_WRONG` only when a required value is missing or wrong."""
        self.origins[path] = node.origin
        known = {setting.name: setting for setting in structs.fields(cls)}
        prefix = f"{path}." if path else ""
        for key, place in node.repeated:
            first = node.entries[key].key
            self._report(place, prefix + key, f"given twice; the first time on {first}")
        for key, entry in node.entries.items():
            if key not in known:
                self._report(entry.key, prefix + key, f"unknown key{_advice(key, known)}")

        values: dict[str, Any] = {}
        for name, setting in known.items():
            if name in node.entries:
                values[name] = self.value(setting.type, node.entries[name].node, prefix + name)
            elif setting.default is NODEFAULT:
                message = f"missing; expected {expectation(setting.type)}"
                values[name] = self._report(node.origin, prefix + name, message)
        wrong = {name for name, value in values.items() if value is _WRONG}
        if any(known[name].default is NODEFAULT for name in wrong):
            return _WRONG
        right = {name: value for name, value in values.items() if name not in wrong}
        return self._backend(right, path) if cls is BackendSettings else cls(**right)

    def value(self, annotation: Annotation, node: Node, path: str) -> object:
        """Convert any node; `_WRONG` when it has been reported."""
        self.origins[path] = node.origin
        if isinstance(node, Unusable):
            return self._report(node.origin, path, node.message)
        section = section_of(annotation)
        if section is not None:
            if isinstance(node, Scalar) and node.value is None:
                node = Mapping(node.origin)  # a section whose keys are all commented out
            if isinstance(node, Mapping):
                return self.section(section, node, path)
            return self._unexpected(annotation, node, path)
        item = item_of(annotation)
        if item is not None and isinstance(node, Sequence):
            return self._list(annotation, item, node, path)
        if isinstance(node, Scalar):
            try:
                return msgspec.convert(node.value, annotation, strict=node.typed)
            except msgspec.ValidationError:
                pass
        return self._unexpected(annotation, node, path)

    def _list(self, annotation: Annotation, item: Annotation, node: Sequence, path: str) -> object:
        paths = [f"{path}[{index}]" for index in range(len(node.items))]
        values = [self.value(item, child, place) for child, place in zip(node.items, paths, strict=True)]
        right = tuple(value for value in values if value is not _WRONG)
        if section_of(item) is BackendSettings:
            self.backend_paths = [
                place for place, value in zip(paths, values, strict=True) if value is not _WRONG
            ]
            return right
        if len(right) < len(values):
            return _WRONG
        try:
            return msgspec.convert(right, annotation)
        except msgspec.ValidationError:
            return self._unexpected(annotation, node, path)

    def _backend(self, values: dict[str, Any], path: str) -> object:
        try:
            url = parse_backend_url(values["url"])
        except BackendUrlError as error:
            return self._report(self.origins[f"{path}.url"], f"{path}.url", str(error))
        return BackendSettings(**{**values, "url": str(url), "name": values.get("name") or url.authority})

    def _unexpected(self, annotation: Annotation, node: Readable, path: str) -> object:
        secret = is_secret(annotation)
        message = f"expected {expectation(annotation)}"
        message += "; what it is now is not shown" if secret else f", got {_shown(node)}"
        if isinstance(node, Scalar) and not secret:
            message += _hint(annotation, node)
        return self._report(node.origin, path, message)

    def _report(self, origin: Origin, path: str, message: str) -> object:
        self.problems.append(origin.problem(path, message))
        self.wrong.add(path)
        return _WRONG


def _advice(key: str, known: Iterable[str]) -> str:
    """What the operator may have meant by an unknown key: the same word elsewhere, or one like it here."""
    elsewhere = [path for path in _all_paths() if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"; did you mean {' or '.join(elsewhere)}?"
    return did_you_mean(key, known) or f"; expected one of {', '.join(known)}"


def _all_paths() -> Iterable[str]:
    """The dotted paths of all settings and of the sections that hold them, each once."""
    paths: dict[str, None] = {}
    for leaf in leaves():
        parts = leaf.path.split(".")
        paths.update((".".join(parts[:length]), None) for length in range(1, len(parts) + 1))
    return paths


def _shown(node: Readable) -> str:
    """What the operator wrote, short enough for one line."""
    match node:
        case Sequence(items=()):
            return "an empty list"
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
    text = re.sub(r"://[^/@\s]*@", "://...@", node.written)  # may hold a password
    text = text if len(text) <= 60 else f"{text[:57]}..."
    if node.value is None:
        shown = "nothing"
    elif isinstance(node.value, str):
        shown = json.dumps(text, ensure_ascii=False)
    else:
        shown = text
    if node.variables:
        shown += f" from {', '.join(f'${{{name}}}' for name in node.variables)}"
    return shown


def _hint(annotation: Annotation, node: Scalar) -> str:
    if isinstance(node.value, str):
        if node.quoted and _accepts(annotation, plain_value(node.written)):
            return " (leave out the quotes)"
        return did_you_mean(node.value, choices_of(annotation))
    if node.value is not None and _accepts(annotation, node.written):
        return " (put it in quotes)"
    return ""


def _accepts(annotation: Annotation, value: object) -> bool:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True
