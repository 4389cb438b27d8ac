"""Settings from a file, from flags, or from both: either all of them are right, or all mistakes are told.

The steps, each in a file of its own: text -> tree of nodes with lines (`document`), flags laid over it
(`flags`), typed settings (`convert`), rules over several settings (`rules`). Only text that cannot be
read or is not YAML ends this early; otherwise every mistake of every step is in one `SettingsError`.
Takes milliseconds; blocks on the file, so it is not for the event loop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prefix_router.settings.convert import convert
from prefix_router.settings.document import Mapping, Scalar, Sequence, Unusable, parse
from prefix_router.settings.flags import apply_flags
from prefix_router.settings.problems import COMMAND_LINE, Origin, Problem, SettingsError
from prefix_router.settings.rules import violations

if TYPE_CHECKING:
    from collections.abc import Mapping as AbstractMapping
    from collections.abc import Sequence as AbstractSequence

    from prefix_router.settings.flags import Given
    from prefix_router.settings.model import Settings

MAX_FILE_BYTES = 1_048_576
"""A configuration is some kilobytes; a larger file is another file, or a device."""


def load(
    path: str | os.PathLike[str] | None,
    *,
    flags: AbstractSequence[Given] = (),
    environ: AbstractMapping[str, str] | None = None,
) -> Settings:
    """Load a file, or only flags and defaults when `path` is None. `environ` is the process's own by default.

    Raises SettingsError with every mistake.
    """
    if path is None:
        return _settings(Mapping(Origin(COMMAND_LINE)), flags)
    source = os.fspath(path)
    return load_text(read_text(source), source, os.environ if environ is None else environ, flags=flags)


def load_text(
    text: str, source: str, environ: AbstractMapping[str, str], *, flags: AbstractSequence[Given] = ()
) -> Settings:
    """Load settings from YAML text; `source` is what problems call it.

    Raises SettingsError with every mistake.
    """
    root = parse(text, source, environ)
    match root:
        case Mapping():
            return _settings(root, flags)
        case None | Scalar(value=None):
            problem = Problem(source, None, "", "holds no settings; expected at least `backends`")
        case Unusable():
            problem = root.origin.problem("", root.message)
        case Scalar() | Sequence():
            got = "a list" if isinstance(root, Sequence) else "a single value"
            problem = root.origin.problem("", f"expected a mapping of settings, got {got}")
    raise SettingsError([problem])


def _settings(root: Mapping, flags: AbstractSequence[Given]) -> Settings:
    draft = convert(apply_flags(root, flags))
    problems = [*draft.problems, *violations(draft)]
    if problems:
        raise SettingsError(problems)
    return draft.settings


def read_text(source: str) -> str:
    """Read a text file. A byte order mark is skipped; any other encoding than UTF-8 is a mistake.

    Blocks. Raises SettingsError.
    """
    try:
        with open(source, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([Problem(source, None, "", f"cannot be read: {error.strerror}")]) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"expected at most {MAX_FILE_BYTES} bytes; this is no configuration file"
        raise SettingsError([Problem(source, None, "", message)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 text, got byte 0x{error.object[error.start]:02X}"
        raise SettingsError([Problem(source, line, "", message)]) from None
