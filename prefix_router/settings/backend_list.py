"""A list of backends in a file of its own, read as the configuration reads its `backends`.

The file holds the list itself, or `backends:` with the list under it; YAML or JSON. The same reader, the same
rules and the same words as for the configuration, so that a list may be moved from one to the other. Blocks
on the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import structs

from prefix_router.settings.convert import Draft, convert
from prefix_router.settings.document import Entry, Mapping, Node, Sequence, Unusable, parse
from prefix_router.settings.load import read_text
from prefix_router.settings.problems import Origin, Problem, SettingsError
from prefix_router.settings.rules import violations_of_backends

if TYPE_CHECKING:
    from collections.abc import Mapping as AbstractMapping

    from prefix_router.settings.model import BackendSettings, RoutingSettings

_EXPECTED = "expected a list of backends"


def read_backend_list(
    path: str, routing: RoutingSettings, environ: AbstractMapping[str, str] | None = None
) -> list[tuple[BackendSettings, frozenset[str]]]:
    """Return the backends of a file, each with the names of the settings that are written there.

    routing: what backends with KV events must fit to. environ: the process's own by default. Raises
    SettingsError with every mistake, `file:line: path: message`.
    """
    root = parse(read_text(path), path, os.environ if environ is None else environ)
    draft = convert(Mapping(Origin(path), {"backends": Entry(Origin(path), _list(root, path))}))
    draft.settings = structs.replace(draft.settings, routing=routing)
    problems = [*draft.problems, *violations_of_backends(draft)]
    if problems:
        raise SettingsError(problems)
    return [
        (backend, _given(draft, place))
        for backend, place in zip(draft.settings.backends, draft.backend_paths, strict=True)
    ]


def _list(root: Node | None, path: str) -> Node:
    """Find the list in a document. Raises SettingsError."""
    match root:
        case Sequence():
            return root
        case Mapping(entries=entries, repeated=()) if list(entries) == ["backends"]:
            return entries["backends"].node
        case None:
            raise SettingsError([Problem(path, None, "", f"{_EXPECTED}, the file holds nothing")])
        case Unusable(origin=origin, message=message):
            raise SettingsError([origin.problem("", message)])
    raise SettingsError([root.origin.problem("", f"{_EXPECTED}, or backends: with one and nothing else")])


def _given(draft: Draft, place: str) -> frozenset[str]:
    prefix = f"{place}."
    return frozenset(path.removeprefix(prefix) for path in draft.origins if path.startswith(prefix))
