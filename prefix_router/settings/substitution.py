"""Environment variables in configuration texts: `${NAME}`, `${NAME:-default}` and the escape `$${`.

The rules are a shell's, cut down to what can be read at a glance: a default holds when the variable is
unset or empty, it is literal text without `}`, and nothing nests. The text of a variable is never looked
at again, so a value cannot smuggle in another variable. A `$` without `{` is an ordinary character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\})?")


class SubstitutionError(Exception):
    """A text that cannot be completed. The message says all that is wrong with it."""


@dataclass(frozen=True, slots=True)
class Substituted:
    """A completed text and the variables it was completed from, in order of appearance."""

    text: str
    variables: tuple[str, ...]


def substitute(text: str, environ: Mapping[str, str]) -> Substituted:
    """Replace each variable of `text` by its value. O(length).

    Raises SubstitutionError when a `${` is not one of the three forms, or a variable without a default
    is unset.
    """
    variables: list[str] = []
    mistakes: list[str] = []

    def replacement(mark: re.Match[str]) -> str:
        if mark.group() == "$${":
            return "${"
        name, default = mark["name"], mark["default"]
        if name is None or (default is not None and "${" in default):
            mistakes.append("expected ${NAME} or ${NAME:-default} (a literal ${ is written $${)")
            return ""
        variables.append(name)
        if default is not None:
            return environ.get(name) or default.removeprefix(":-")
        if name not in environ:
            mistakes.append(
                f"the environment variable {name} is not set and has no default; write ${{{name}:-default}}"
            )
        return environ.get(name, "")

    completed = _MARK.sub(replacement, text)
    if mistakes:
        raise SubstitutionError("; ".join(dict.fromkeys(mistakes)))
    return Substituted(completed, tuple(variables))
