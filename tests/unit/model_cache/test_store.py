"""One cache folder: what is shared, what stays, what goes, and what a kill leaves."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prefix_router.model_cache.layout import remove_tree
from prefix_router.model_cache.manifest import Manifest, ManifestError, StoredFile
from prefix_router.model_cache.partial import PartialFile
from prefix_router.model_cache.store import InUseError, NoModelError, NoSpaceError, Store

BLOCK = 4096


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def data(letter: str, blocks: int = 1) -> bytes:
    return letter.encode() * BLOCK * blocks


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(store: Store, name: str, revision: str = "r1", **files: bytes) -> Manifest:
    """Store a model as a pull does."""
    stored = []
    for path, content in files.items():
        if not store.has_blob(sha(content), len(content)):
            with PartialFile(store.layout.part(sha(content)), len(content)) as part:
                for number in part.missing:
                    part.put(number, content)
                store.adopt(part, part.digest())
        stored.append(StoredFile(path, len(content), sha(content)))
    manifest = Manifest(name, revision, "test://", store._clock(), tuple(stored))
    store.publish(manifest)
    return manifest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", clock=Clock())


def blobs(store: Store) -> set[str]:
    return {path.name for path in (store.layout.root / "blobs").glob("*/*")}


def names(store: Store) -> list[str]:
    return [stored.manifest.name for stored in store.models()]


def test_engines_read_the_files_of_a_published_model(store: Store) -> None:
    put(store, "llama", config=b"{}", weights=data("w"))
    path = store.model("llama").path
    assert (path / "weights").read_bytes() == data("w")
    assert {entry.name for entry in path.iterdir()} == {"config", "weights"}
    assert not os.access(path / "weights", os.W_OK) or os.geteuid() == 0
    assert (path / "weights").stat().st_mode & 0o222 == 0


def test_equal_files_of_two_models_lie_there_once(store: Store) -> None:
    put(store, "a", weights=data("w"), own=data("a"))
    put(store, "b", weights=data("w"), own=data("b"))
    assert len(blobs(store)) == 3
    store.evict("a", "r1")
    assert (store.model("b").path / "weights").read_bytes() == data("w")
    assert blobs(store) == {sha(data("w")), sha(data("b"))}


def test_a_model_can_be_there_in_two_revisions(store: Store) -> None:
    put(store, "a", "old", weights=data("1"))
    put(store, "a", "new", weights=data("2"))
    assert store.model("a").manifest.revision == "new"
    assert (store.model("a", "old").path / "weights").read_bytes() == data("1")


def test_publishing_again_changes_nothing(store: Store) -> None:
    manifest = put(store, "a", weights=data("w"))
    inode = (store.model("a").path / "weights").stat().st_ino
    store.publish(manifest)
    assert (store.model("a").path / "weights").stat().st_ino == inode


def test_a_model_with_a_file_missing_is_not_published(store: Store) -> None:
    manifest = Manifest("a", "r1", "test://", 0.0, (StoredFile("weights", 1, sha(b"x")),))
    with pytest.raises(NoModelError, match="weights of a"):
        store.publish(manifest)
    assert store.models() == []
    assert list((store.layout.root / "staging").iterdir()) == []


def test_no_path_of_a_manifest_leaves_the_model(store: Store) -> None:
    content = put(store, "a", weights=data("w")).files[0].sha256
    with pytest.raises(ManifestError):
        store.publish(Manifest("b", "r1", "test://", 0.0, (StoredFile("../../x", BLOCK, content),)))
    with pytest.raises(ManifestError):
        store.publish(Manifest("../b", "r1", "test://", 0.0, (StoredFile("x", BLOCK, content),)))


@pytest.mark.parametrize("ask", [("b", None), ("a", "other")])
def test_what_is_not_there_is_named(store: Store, ask: tuple[str, str | None]) -> None:
    put(store, "a", weights=data("w"))
    with pytest.raises(NoModelError, match=ask[0]):
        store.model(*ask)


def test_the_least_recently_used_leaves_for_a_promise(tmp_path: Path) -> None:
    store = Store(tmp_path, capacity_bytes=3 * BLOCK, clock=Clock())
    for name in ("a", "b", "c"):
        put(store, name, weights=data(name))
    with store.using("a", "r1"):
        pass
    with store.promise(BLOCK):
        assert names(store) == ["a", "c"]


def test_pinned_and_used_models_stay_and_the_answer_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path, capacity_bytes=2 * BLOCK, clock=Clock())
    put(store, "pinned-one", weights=data("p"))
    put(store, "used-one", weights=data("u"))
    store.pin("pinned-one", "r1")
    with store.using("used-one", "r1") as path:
        assert (path / "weights").read_bytes() == data("u")
        with pytest.raises(NoSpaceError, match=r"pinned-one \(pinned\), used-one \(in use\)"):
            store.promise(1)
    store.unpin("pinned-one", "r1")
    store.promise(2 * BLOCK).close()
    assert store.models() == []


def test_evicting_what_is_kept_is_refused(store: Store) -> None:
    put(store, "a", weights=data("w"))
    store.pin("a", "r1")
    with pytest.raises(InUseError, match="pinned"):
        store.evict("a", "r1")
    store.unpin("a", "r1")
    with store.using("a", "r1"), pytest.raises(InUseError, match="in use"):
        store.evict("a", "r1")
    store.evict("a", "r1")
    assert (store.models(), blobs(store)) == ([], set())


def test_who_has_a_file_open_keeps_it_after_an_eviction(store: Store) -> None:
    put(store, "a", weights=data("w"))
    with (store.model("a").path / "weights").open("rb") as file:
        store.evict("a", "r1")
        assert file.read() == data("w")


def test_promises_that_run_side_by_side_know_of_each_other(tmp_path: Path) -> None:
    store, other = (Store(tmp_path, capacity_bytes=10 * BLOCK) for _ in range(2))
    with store.promise(6 * BLOCK) as promise:
        with pytest.raises(NoSpaceError):
            other.promise(5 * BLOCK)
        promise.written(2 * BLOCK)
        assert other.space().reserved == 4 * BLOCK
    other.promise(10 * BLOCK).close()


def test_the_disk_itself_is_a_limit(tmp_path: Path) -> None:
    free = Store(tmp_path).space().disk_free
    with pytest.raises(NoSpaceError):
        Store(tmp_path).promise(2 * free)
    with pytest.raises(NoSpaceError):
        Store(tmp_path, keep_free_bytes=2 * free).promise(1)


def test_holes_of_a_file_on_its_way_take_no_space(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with PartialFile(store.layout.part("x"), 10**12):
        assert store.space().used < 10**6


_KEEPER = """
import sys, time
from pathlib import Path
from prefix_router.model_cache.store import Store
store = Store(Path(sys.argv[1]), capacity_bytes=10**6)
with store.using("a", "r1"), store.promise(10**5):
    print("holds", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_held_is_free_again(tmp_path: Path) -> None:
    store = Store(tmp_path, capacity_bytes=10**6)
    put(store, "a", weights=data("w"))
    with subprocess.Popen([sys.executable, "-c", _KEEPER, str(tmp_path)], stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        assert store.model("a").in_use
        assert store.space().reserved == 10**5
        os.kill(keeper.pid, signal.SIGKILL)
        keeper.wait()
    assert not store.model("a").in_use
    assert store.space().reserved == 0


def test_a_sweep_puts_away_what_crashes_left_and_nothing_else(store: Store) -> None:
    put(store, "a", weights=data("w"))
    root = store.layout.root
    for folder in ("trash", "staging"):
        (root / folder / "left" / "files").mkdir(parents=True)
    orphan = store.layout.blob(sha(b"nobody's"))
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    with PartialFile(store.layout.part("coming"), 10) as part:
        part.put(0, bytes(10))
    with store.promise(1):
        store.sweep()
        assert orphan.exists()  # it may be the first file of the pull that runs
    store.sweep()
    assert not orphan.exists()
    assert not list((root / "trash").iterdir())
    assert not list((root / "staging").iterdir())
    assert names(store) == ["a"]
    assert store.layout.part("coming").exists()


def test_a_published_folder_whose_manifest_is_broken_is_no_model(store: Store) -> None:
    put(store, "a", weights=data("w"))
    (store.layout.model("a", "r1") / "manifest.json").write_text("{")
    assert store.models() == []


def test_read_only_folders_are_removed_too(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "file").touch()
    (tmp_path / "x" / "y").chmod(0o500)
    remove_tree(tmp_path / "x")
    assert not (tmp_path / "x").exists()
