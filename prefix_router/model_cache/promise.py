"""Space that a pull will need, promised before it is written.

A promise is a file with a number in it, and a lock on it: a promise whose owner is dead has no lock, and
counts for nothing. So two pulls that run side by side know of each other, and a kill gives back what it had.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from prefix_router.model_cache.layout import is_held


class Promise:
    """Bytes that are still to be written. A context manager; its end gives back the rest."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._left = size
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write()

    def __enter__(self) -> Promise:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def written(self, size: int) -> None:
        """So many bytes of it are on the disk now, and count there."""
        self._left = max(self._left - size, 0)
        self._write()

    def close(self) -> None:
        """Give back what was not needed. Again is fine."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def _write(self) -> None:
        os.pwrite(self._file, b"%020d" % self._left, 0)


def promised_bytes(folder: Path) -> int:
    """Return what is promised and not written; forget the promises of the dead."""
    total = 0
    for path in folder.iterdir():
        if not is_held(path):
            path.unlink(missing_ok=True)
            continue
        with suppress(FileNotFoundError, ValueError):
            total += int(path.read_bytes())
    return total
