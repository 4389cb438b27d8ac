"""A file on its way: pieces may come in any order, from several places, and a kill at any moment loses none.

Beside the data lies a log of the pieces that are there, with their digests. Neither is trusted: whoever opens
them again computes the digest of each logged piece anew, so that it does not matter in which order a crash
let the two reach the disk. That reads what is there once, at the disk's speed, and downloads nothing twice.

Blocking; for threads. One writer at a time: a lock on the log, which the kernel takes back from who dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from prefix_router.model_cache.manifest import piece_count, piece_range

_ENTRY = struct.Struct(">I32s")
_READ_BYTES = 1024 * 1024


class PartialFileBusyError(Exception):
    """Another process fetches the same file."""


class PartialFile:
    """The part of a file that has come. A context manager: it holds the lock."""

    def __init__(self, folder: Path, size: int) -> None:
        """Open or begin it in `folder`, for a file of `size` bytes.

        Raises PartialFileBusyError, OSError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.size = size
        self._folder = folder
        self._log = os.open(folder / "pieces", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._log)
            raise PartialFileBusyError(f"{folder.name} is being fetched by another process") from None
        self._file = os.open(self.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, size)
        self.digests: dict[int, bytes] = dict(self._sound())
        self._rewrite()

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def missing(self) -> list[int]:
        """Numbers of the pieces that are not there, in order."""
        return [number for number in range(piece_count(self.size)) if number not in self.digests]

    @property
    def missing_bytes(self) -> int:
        """How much has still to come."""
        return sum(piece_range(self.size, number)[1] for number in self.missing)

    def put(self, number: int, data: bytes) -> None:
        """Keep piece `number`, which must be whole. Raises OSError, also when the disk is full."""
        start, length = piece_range(self.size, number)
        assert len(data) == length, "a piece is kept whole or not at all"
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, start)
            view, start = view[written:], start + written
        digest = hashlib.sha256(data).digest()
        os.write(self._log, _ENTRY.pack(number, digest))
        self.digests[number] = digest

    def drop(self, number: int) -> None:
        """Forget piece `number`: it was wrong."""
        del self.digests[number]
        self._rewrite()

    def read(self, number: int) -> bytes | None:
        """Return piece `number`, None when it is not there."""
        if number not in self.digests:
            return None
        start, length = piece_range(self.size, number)
        return os.pread(self._file, length, start)

    def digest(self) -> str:
        """Return the SHA-256 of the whole file, in hex. Call it when nothing is missing."""
        whole = hashlib.sha256()
        position = 0
        while data := os.pread(self._file, _READ_BYTES, position):
            whole.update(data)
            position += len(data)
        return whole.hexdigest()

    def sync(self) -> None:
        """Wait until the data is on the disk."""
        os.fsync(self._file)

    def remove(self) -> None:
        """Delete what is left of it."""
        for name in ("data", "pieces"):
            (self._folder / name).unlink(missing_ok=True)
        self._folder.rmdir()

    def close(self) -> None:
        """Let go of it; what has come stays."""
        for descriptor in (self._file, self._log):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._log = -1

    def _sound(self) -> Iterator[tuple[int, bytes]]:
        """The logged pieces whose data is what was logged."""
        log = os.pread(self._log, os.fstat(self._log).st_size, 0)
        logged = dict(_ENTRY.iter_unpack(log[: len(log) - len(log) % _ENTRY.size]))
        for number, digest in logged.items():
            if number < piece_count(self.size):
                start, length = piece_range(self.size, number)
                if hashlib.sha256(os.pread(self._file, length, start)).digest() == digest:
                    yield number, digest

    def _rewrite(self) -> None:
        """Make the log say what is known now; half an entry at its end would shift all that follow."""
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        os.write(self._log, b"".join(_ENTRY.pack(*entry) for entry in self.digests.items()))
