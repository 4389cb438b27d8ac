"""Where things lie in a cache folder, and the locks on them. Nothing else knows a path.

    lock                                 held for moments, by whoever changes what is published or promised
    blobs/ab/abcdef…                     verified files by their SHA-256, read-only
    parts/<key>/                         files on their way (`partial`)
    models/<name>/<revision>/manifest.json
    models/<name>/<revision>/files/…     what engines read: hard links to blobs
    pins/<name>/<revision>               exists while pinned
    used/<name>/<revision>               its time of modification: when the model was last used
    promises/<id>                        bytes that a running pull has still to write
    trash/, staging/                     on their way out and in; what is left there after a crash is swept

A model appears by one rename of its folder from `staging`, and goes by one rename to `trash`: a reader sees
all of it or nothing, and who has its files open keeps them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("blobs", "parts", "models", "pins", "used", "promises", "trash", "staging")
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cache."""

    root: Path

    def prepare(self) -> None:
        """Make the folders. Raises OSError."""
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "lock").touch()

    def blob(self, sha256: str) -> Path:
        """A verified file."""
        return self.root / "blobs" / sha256[:2] / sha256

    def part(self, key: str) -> Path:
        """The folder of a file on its way."""
        return self.root / "parts" / key

    def model(self, name: str, revision: str) -> Path:
        """A published model."""
        return self.root / "models" / name / revision

    def files(self, name: str, revision: str) -> Path:
        """What engines read of it."""
        return self.model(name, revision) / "files"

    def pin(self, name: str, revision: str) -> Path:
        """Exists while the model is pinned."""
        return self.root / "pins" / name / revision

    def used(self, name: str, revision: str) -> Path:
        """Tells when the model was last used."""
        return self.root / "used" / name / revision

    def fresh(self, folder: str) -> Path:
        """A path in `folder` that nobody else has."""
        return self.root / folder / uuid.uuid4().hex

    def published(self) -> Iterator[tuple[str, str]]:
        """Name and revision of every model, in order."""
        for manifest in sorted((self.root / "models").glob(f"*/*/{MANIFEST}")):
            yield manifest.parent.parent.name, manifest.parent.name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep everybody else from changing what is published or promised. Waits; hold it for moments."""
        with held(self.root / "lock", exclusive=True):
            yield


@contextmanager
def held(path: Path, *, exclusive: bool, wait: bool = True) -> Iterator[None]:
    """Hold a lock on a file. Raises FileNotFoundError; BlockingIOError if it is taken and `wait` is false."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)  # which gives the lock back


def is_held(path: Path) -> bool:
    """Whether anybody holds a lock on a file."""
    try:
        with held(path, exclusive=True, wait=False):
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader, or a crash, sees all of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with scratch.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Delete a folder and all in it, read-only or not. What cannot be deleted stays for the next time."""
    for folder, _, _ in os.walk(path):
        with suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
