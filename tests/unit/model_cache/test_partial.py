"""A file on its way, and what a kill leaves of it."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prefix_router.model_cache import manifest
from prefix_router.model_cache.partial import PartialFile, PartialFileBusyError

PIECE = 1024


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PIECE_BYTES", PIECE)


DATA = random.Random(7).randbytes(5 * PIECE + 100)


def piece(number: int) -> bytes:
    return DATA[number * PIECE : (number + 1) * PIECE]


def test_pieces_come_in_any_order_and_make_the_file(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        for number in (3, 0, 5, 1, 4):
            part.put(number, piece(number))
        assert (part.missing, part.missing_bytes) == ([2], PIECE)
        part.put(2, piece(2))
        assert part.missing == []
        assert part.digest() == hashlib.sha256(DATA).hexdigest()
        assert part.data.read_bytes() == DATA
        assert part.read(5) == piece(5)


def test_an_empty_file_is_complete_at_once(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", 0) as part:
        assert part.missing == []
        assert part.digest() == hashlib.sha256().hexdigest()


def test_who_comes_back_finds_what_had_come(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        part.put(1, piece(1))
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        assert part.missing == [0, 2, 3, 4, 5]
        assert part.read(1) == piece(1)


def test_a_logged_piece_whose_data_never_reached_the_disk_is_missing(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        part.put(1, piece(1))
        part.put(2, piece(2))
        with part.data.open("r+b") as file:
            file.seek(PIECE)
            file.write(bytes(10))
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        assert part.missing == [0, 1, 3, 4, 5]


def test_half_an_entry_at_the_end_of_the_log_harms_nobody(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        part.put(1, piece(1))
    with (tmp_path / "p" / "pieces").open("ab") as log:
        log.write(b"half")
    for _ in range(2):
        with PartialFile(tmp_path / "p", len(DATA)) as part:
            assert 1 not in part.missing
            part.put(2, piece(2))
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        assert part.missing == [0, 3, 4, 5]


def test_a_log_of_another_size_says_nothing_of_pieces_that_do_not_exist(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        part.put(5, piece(5))
        part.put(0, piece(0))
    with PartialFile(tmp_path / "p", 2 * PIECE) as part:
        assert part.missing == [1]


def test_a_wrong_piece_can_be_dropped(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        part.put(0, bytes(PIECE))
        part.put(1, piece(1))
        part.drop(0)
        assert part.read(0) is None
    with PartialFile(tmp_path / "p", len(DATA)) as part:
        assert part.missing == [0, 2, 3, 4, 5]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", 1), pytest.raises(PartialFileBusyError):
        PartialFile(tmp_path / "p", 1)
    PartialFile(tmp_path / "p", 1).close()


def test_nothing_is_left_of_what_is_removed(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "p", 1) as part:
        part.remove()
    assert not (tmp_path / "p").exists()


_WRITER = """
import sys
from pathlib import Path
from prefix_router.model_cache import manifest
manifest.PIECE_BYTES = 1024
from prefix_router.model_cache.partial import PartialFile
part = PartialFile(Path(sys.argv[1]), 1024 * 200)
while True:
    for number in range(200):
        part.put(number, bytes([number]) * 1024)
        print(number, flush=True)
"""


@pytest.mark.parametrize("pieces", [1, 7, 42])
def test_a_kill_at_any_moment_loses_no_piece_that_was_kept(tmp_path: Path, pieces: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "p")], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(pieces):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    with PartialFile(tmp_path / "p", 1024 * 200) as part:
        assert set(range(pieces)) <= part.digests.keys()
        for number in part.digests:
            assert part.read(number) == bytes([number]) * 1024
