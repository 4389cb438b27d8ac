"""What may reach the disk, and what names a revision."""

from __future__ import annotations

import msgspec
import pytest

from prefix_router.model_cache.manifest import (
    PIECE_BYTES,
    Listing,
    ManifestError,
    RemoteFile,
    check_listing,
    checked_name,
    checked_path,
    derived_revision,
    piece_count,
    piece_range,
)


def listing(*paths: str) -> Listing:
    return Listing("https://x/m", "r1", tuple(RemoteFile(path, 1, "v") for path in paths))


@pytest.mark.parametrize("path", ["config.json", "a/b/c.safetensors", "mit leerzeichen.txt", "…", "a.b/c"])
def test_plain_paths_are_fine(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a/./b", "a\\b", "a\nb", "a\0b", "x" * 300],
)
def test_paths_that_leave_or_confuse_are_refused(path: str) -> None:
    with pytest.raises(ManifestError):
        checked_path(path)


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "..", "a b", "x" * 129, "a\n"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(ManifestError):
        checked_name(name)


def test_a_listing_must_make_a_tree() -> None:
    check_listing(listing("a", "b/c", "b/d"))
    for bad in (listing(), listing("a", "a"), listing("b", "b/c"), listing("../a")):
        with pytest.raises(ManifestError):
            check_listing(bad)
    with pytest.raises(ManifestError):
        check_listing(msgspec.structs.replace(listing("a"), revision="../r"))


def test_a_changed_object_under_the_same_path_is_another_revision() -> None:
    before = (RemoteFile("a", 1, "etag-1"), RemoteFile("b", 2, "etag-2"))
    assert derived_revision(before) == derived_revision(before[::-1])
    assert derived_revision(before) != derived_revision((before[0], RemoteFile("b", 2, "etag-3")))
    assert derived_revision(before) != derived_revision((before[0], RemoteFile("b", 3, "etag-2")))
    assert derived_revision(before) != derived_revision(before[:1])


def test_what_the_source_calls_by_its_content_does_not_depend_on_its_version() -> None:
    one, other = RemoteFile("a", 1, "time-1", sha256="ab"), RemoteFile("a", 1, "time-2", sha256="ab")
    assert derived_revision((one,)) == derived_revision((other,))


@pytest.mark.parametrize(
    ("size", "count", "last"),
    [(0, 0, None), (1, 1, 1), (PIECE_BYTES, 1, PIECE_BYTES), (PIECE_BYTES + 5, 2, 5)],
)
def test_pieces_cover_a_file_and_nothing_more(size: int, count: int, last: int | None) -> None:
    assert piece_count(size) == count
    ranges = [piece_range(size, number) for number in range(count)]
    assert sum(length for _, length in ranges) == size
    if last is not None:
        assert ranges[-1] == (size - last, last)
