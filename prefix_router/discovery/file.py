"""Backends from a file that somebody else writes: a script, a template, a mounted ConfigMap.

The file is read again whenever it has changed. One that cannot be read, has a mistake in it, or names nobody
leaves the last good set in force: a file is emptied by accident more often than on purpose, and the
configuration itself may not be without backends either.

How a list of backends is read is the settings' business: `read` comes from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from prefix_router.discovery.file_watch import SeenFile, changes
from prefix_router.discovery.source import FoundSet, Trouble

REPEAT_SECONDS = 60.0
"""After that long a file is read again in any case: it shows that it still can be."""

ReadList: TypeAlias = Callable[[str], "FoundSet | Trouble"]
"""Reads a file of that path, blocking. Never raises: a mistake is a `Trouble` with file and line."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """path: of the file. read: what reads it; equal for equal rules of reading."""

    path: str
    read: ReadList
    look_seconds: float | None = None

    def source(self) -> FileSource:
        """Make the source."""
        return FileSource(self)


class FileSource:
    """Says what a file says. A `Source`."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    async def reports(self) -> AsyncGenerator[FoundSet | Trouble, None]:
        """Yield the content at the start, after each change, and now and then."""
        seen = await asyncio.to_thread(SeenFile.now, Path(self._options.path))
        yield await asyncio.to_thread(self._read)
        async with aclosing(changes(seen, self._options.look_seconds, REPEAT_SECONDS)) as looks:
            async for _ in looks:
                yield await asyncio.to_thread(self._read)

    def _read(self) -> FoundSet | Trouble:
        """Read the file. Blocks."""
        path = self._options.path
        report = self._options.read(path)
        if report == ():
            return Trouble(
                f"{path}: names no backend; to have none from a file, take discovery.file.path "
                "out of the configuration"
            )
        return report
