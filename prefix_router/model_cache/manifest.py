"""What a model consists of: the values that sources, store and agents exchange. Pure.

A `Listing` is what a source says before anything is downloaded; a `Manifest` is what the store has verified.
A revision names content: when a source cannot name one itself (a commit), it is derived from what it says of
each file, so that a changed object under the same path is another revision.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

from msgspec import Struct

PIECE_BYTES = 16 * 1024 * 1024
"""Files are fetched, verified and exchanged between nodes in pieces of this size; the last one is shorter."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ManifestError(ValueError):
    """A name, a path or a listing that must not reach the disk."""


class RemoteFile(Struct, frozen=True):
    """One file as its source describes it.

    path: relative, with `/`. size: bytes. version: what the source changes whenever the content changes (an
    ETag, a commit, a time of modification). sha256: hex, None when the source does not know it.
    """

    path: str
    size: int
    version: str
    sha256: str | None = None


class Listing(Struct, frozen=True):
    """All files of a model at one moment. source: an URL without secrets. revision: see the module."""

    source: str
    revision: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class StoredFile(Struct, frozen=True):
    """One verified file. pieces: the SHA-256 (hex) of each piece of `PIECE_BYTES`, in order."""

    path: str
    size: int
    sha256: str
    pieces: tuple[str, ...] = ()


class Manifest(Struct, frozen=True):
    """A model as the store has it. stored_at: Unix time in seconds."""

    name: str
    revision: str
    source: str
    stored_at: float
    files: tuple[StoredFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def piece_count(size: int) -> int:
    """How many pieces a file of `size` bytes has; an empty one has none."""
    return -(-size // PIECE_BYTES)


def piece_range(size: int, number: int) -> tuple[int, int]:
    """Return start and length of piece `number`, in bytes."""
    start = number * PIECE_BYTES
    return start, min(PIECE_BYTES, size - start)


def derived_revision(files: tuple[RemoteFile, ...]) -> str:
    """Return a revision for files whose source has none: 16 hex digits over paths, sizes and versions."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        for part in (file.path, str(file.size), file.sha256 or file.version):
            digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:16]


def checked_name(name: str) -> str:
    """Return `name` if it may be the name of a model or a revision on disk. Raises ManifestError."""
    if _NAME.fullmatch(name) is None:
        message = f"expected at most 128 letters, digits, - _ or . (not first), got {name[:64]!r}"
        raise ManifestError(message)
    return name


def checked_path(path: str) -> str:
    """Return `path` if it stays inside a model's folder on every file system. Raises ManifestError."""
    pure = PurePosixPath(path)
    bad = (
        not path
        or pure.is_absolute()
        or str(pure) != path
        or any(part in ("..", ".") or len(part.encode()) > 255 for part in pure.parts)
        or any(ord(character) < 32 or character in "\\\x7f" for character in path)
    )
    if bad:
        raise ManifestError(f"the path {path[:128]!r} is not a plain relative path")
    return path


def check_listing(listing: Listing) -> None:
    """Raise ManifestError unless every path may be written and none stands in the way of another."""
    checked_name(listing.revision)
    if not listing.files:
        raise ManifestError(f"{listing.source} has no files")
    seen: set[str] = set()
    for file in listing.files:
        if checked_path(file.path) in seen:
            raise ManifestError(f"{file.path[:128]!r} is listed twice")
        if file.size < 0:
            raise ManifestError(f"{file.path[:128]!r} has a negative size")
        seen.add(file.path)
    for path in seen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in seen:
                raise ManifestError(f"{str(parent)[:128]!r} is listed as a file and as a folder")
