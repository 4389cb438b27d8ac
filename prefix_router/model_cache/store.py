"""The models on one node: what is there, what may stay, what has to go.

Content-addressed: equal files of different models lie on the disk once. Space is promised before it is
written, so that pulls that run side by side do not fill the disk together. What is pinned or in use stays.

Several processes may use one cache at a time, and each may be killed at any moment (`layout` says why that is
harmless; `sweep` puts away what a kill leaves). Blocking; for threads. Never touches what engines have open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prefix_router.model_cache.capacity import Plan, Space, Tenant, plan
from prefix_router.model_cache.layout import (
    MANIFEST,
    Layout,
    held,
    is_held,
    remove_tree,
    sync_folder,
    write_whole,
)
from prefix_router.model_cache.manifest import Manifest, checked_name, checked_path
from prefix_router.model_cache.partial import PartialFile
from prefix_router.model_cache.promise import Promise, promised_bytes


class NoSpaceError(Exception):
    """A model does not fit, whatever leaves."""


class NoModelError(KeyError):
    """There is no such model in the cache."""

    def __str__(self) -> str:
        return str(self.args[0])


class InUseError(Exception):
    """The model is pinned or somebody uses it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One model of the cache. last_used: Unix time in seconds. path: what engines read."""

    manifest: Manifest
    path: Path
    pinned: bool
    in_use: bool
    last_used: float


class Store:
    """One cache folder."""

    def __init__(
        self,
        root: Path,
        *,
        capacity_bytes: int | None = None,
        keep_free_bytes: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open or begin it. capacity_bytes: None for all the disk but `keep_free_bytes`. Raises OSError."""
        self.layout = Layout(root)
        self.layout.prepare()
        self._capacity = capacity_bytes
        self._keep_free = keep_free_bytes
        self._clock = clock

    # What is there.

    def models(self) -> list[Stored]:
        """Return all models, in order of name and revision."""
        with self.layout.locked():
            return self._models()

    def model(self, name: str, revision: str | None = None) -> Stored:
        """Return one model; without a revision the one that was stored last. Raises NoModelError."""
        with self.layout.locked():
            return self._model(name, revision)

    def _models(self) -> list[Stored]:
        found = (self._stored(name, revision) for name, revision in self.layout.published())
        return [stored for stored in found if stored is not None]

    def _model(self, name: str, revision: str | None = None) -> Stored:
        found = [stored for stored in self._models() if stored.manifest.name == name]
        if revision is not None:
            found = [stored for stored in found if stored.manifest.revision == revision]
        if not found:
            at = "" if revision is None else f" at revision {revision}"
            raise NoModelError(f"no model {name!r}{at} in {self.layout.root}")
        return max(found, key=lambda stored: stored.manifest.stored_at)

    def has_blob(self, sha256: str, size: int) -> bool:
        """Whether a verified file of that content is there."""
        try:
            return self.layout.blob(sha256).stat().st_size == size
        except FileNotFoundError:
            return False

    def space(self) -> Space:
        """Return how full it is."""
        disk = os.statvfs(self.layout.root)
        return Space(
            capacity=self._capacity,
            used=sum(_allocated(self.layout.root / folder) for folder in ("blobs", "parts")),
            reserved=promised_bytes(self.layout.root / "promises"),
            disk_free=disk.f_bavail * disk.f_frsize,
            keep_free=self._keep_free,
        )

    # What comes.

    def promise(self, needed: int, wanted: Collection[str] = ()) -> Promise:
        """Promise `needed` bytes to a pull; who has to leave for them, leaves now.

        wanted: content addresses of files that are there and must stay. Keep the promise open while the pull
        runs, and tell it what has been written. Raises NoSpaceError.
        """
        with self.layout.locked():
            found = self._plan(needed, wanted)
            if not found.fits:
                raise NoSpaceError(self._no_space(needed, found))
            for tenant in found.evicted:
                self._remove(tenant.name, tenant.revision)
            return Promise(self.layout.fresh("promises"), needed)

    def adopt(self, part: PartialFile, sha256: str) -> None:
        """Make a blob of a complete, verified part. The part is gone afterwards."""
        part.sync()
        part.data.chmod(0o444)
        blob = self.layout.blob(sha256)
        blob.parent.mkdir(exist_ok=True)
        part.data.replace(blob)
        sync_folder(blob.parent)
        part.remove()

    def publish(self, manifest: Manifest) -> Stored:
        """Let readers see a model whose files are all there, at once. Again is fine.

        Raises NoModelError when a blob is missing, ManifestError.
        """
        layout, name, revision = self.layout, checked_name(manifest.name), checked_name(manifest.revision)
        staging = layout.fresh("staging")
        with layout.locked():
            if not layout.model(name, revision).exists():
                self._link(manifest, staging / "files")
                write_whole(staging / MANIFEST, msgspec.json.encode(manifest))
                target = layout.model(name, revision)
                target.parent.mkdir(parents=True, exist_ok=True)
                staging.rename(target)
                sync_folder(target.parent)
            self._touch(name, revision)
            stored = self._stored(name, revision)
        assert stored is not None, "it was published a moment ago"
        return stored

    # What stays and what goes.

    def pin(self, name: str, revision: str) -> None:
        """Keep a model until it is unpinned. Raises NoModelError."""
        with self.layout.locked():
            self._model(name, revision)
            write_whole(self.layout.pin(name, revision), b"")

    def unpin(self, name: str, revision: str) -> None:
        """Let a model go when its place is needed. Raises NoModelError."""
        with self.layout.locked():
            self._model(name, revision)
            self.layout.pin(name, revision).unlink(missing_ok=True)

    @contextmanager
    def using(self, name: str, revision: str) -> Iterator[Path]:
        """Keep a model while this context lasts; gives what engines read. Raises NoModelError.

        The kernel ends the use of a process that dies.
        """
        try:
            with held(self.layout.model(name, revision) / MANIFEST, exclusive=False):
                self._touch(name, revision)
                yield self.layout.files(name, revision)
                self._touch(name, revision)
        except FileNotFoundError:
            raise NoModelError(f"no model {name!r} at revision {revision} in {self.layout.root}") from None

    def evict(self, name: str, revision: str) -> None:
        """Remove a model. Raises NoModelError, InUseError."""
        with self.layout.locked():
            stored = self._model(name, revision)
            if stored.pinned or stored.in_use:
                raise InUseError(f"{name} at {revision} is {'pinned' if stored.pinned else 'in use'}")
            self._remove(name, revision)

    def sweep(self) -> None:
        """Put away what killed processes left, and files that no model has. Parts stay, to be resumed."""
        with self.layout.locked():
            for folder in ("trash", "staging"):
                for left in (self.layout.root / folder).iterdir():
                    remove_tree(left)
            promised_bytes(self.layout.root / "promises")  # forgets those whose owners are dead
            if not promised_bytes(self.layout.root / "promises"):
                self._drop_orphans()  # while a pull runs, its files belong to no model yet

    # Under the lock.

    def _plan(self, needed: int, wanted: Collection[str]) -> Plan:
        tenants = [
            Tenant(
                stored.manifest.name,
                stored.manifest.revision,
                stored.last_used,
                stored.pinned or stored.in_use,
                {file.sha256: file.size for file in stored.manifest.files},
            )
            for stored in self._models()
        ]
        return plan(self.space(), tenants, needed, wanted)

    def _no_space(self, needed: int, found: Plan) -> str:
        kept = [
            f"{stored.manifest.name} ({'pinned' if stored.pinned else 'in use'})"
            for stored in self._models()
            if stored.pinned or stored.in_use
        ]
        message = f"{needed:,} bytes are needed and at most {max(found.available, 0):,} can be had in"
        return f"{message} {self.layout.root}" + (f"; kept: {', '.join(kept)}" if kept else "")

    def _link(self, manifest: Manifest, files: Path) -> None:
        for file in manifest.files:
            target = files / checked_path(file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(self.layout.blob(file.sha256))
            except FileNotFoundError:
                remove_tree(files.parent)
                raise NoModelError(f"{file.path} of {manifest.name} is not in the cache") from None

    def _remove(self, name: str, revision: str) -> None:
        trash = self.layout.fresh("trash")
        manifest = self._manifest(name, revision)
        self.layout.model(name, revision).rename(trash)
        remove_tree(trash)
        for path in (self.layout.used(name, revision), self.layout.pin(name, revision)):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.layout.model(name, revision).parent.rmdir()
        for file in () if manifest is None else manifest.files:
            self._drop_orphan(self.layout.blob(file.sha256))

    def _drop_orphans(self) -> None:
        for blob in (self.layout.root / "blobs").glob("*/*"):
            self._drop_orphan(blob)

    @staticmethod
    def _drop_orphan(blob: Path) -> None:
        with suppress(FileNotFoundError):
            if blob.stat().st_nlink == 1:
                blob.unlink()

    def _touch(self, name: str, revision: str) -> None:
        path, now = self.layout.used(name, revision), self._clock()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (now, now))

    def _manifest(self, name: str, revision: str) -> Manifest | None:
        try:
            data = (self.layout.model(name, revision) / MANIFEST).read_bytes()
            return msgspec.json.decode(data, type=Manifest)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _stored(self, name: str, revision: str) -> Stored | None:
        manifest = self._manifest(name, revision)
        if manifest is None:
            return None
        try:
            last_used = self.layout.used(name, revision).stat().st_mtime
        except FileNotFoundError:
            last_used = manifest.stored_at
        return Stored(
            manifest,
            self.layout.files(name, revision),
            self.layout.pin(name, revision).exists(),
            is_held(self.layout.model(name, revision) / MANIFEST),
            last_used,
        )


def _allocated(folder: Path) -> int:
    """Bytes that the files below `folder` take on the disk; a file with holes takes less than its size."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(Path(where) / name).st_blocks * 512
    return total
