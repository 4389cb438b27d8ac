from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from prefix_router.analyze import reading as reading_module
from prefix_router.analyze.reading import InputError, Reading
from prefix_router.observe.capture_line import CapturedRequest, CaptureHead
from tests.support.recorded import unique, write


def test_lines_are_read_in_order_over_all_files(tmp_path: Path) -> None:
    bodies = unique(4)
    files = [write(tmp_path / "a.jsonl", bodies[:3]), write(tmp_path / "b.jsonl", bodies[3:])]
    reading = Reading(files)
    together = list(reading.requests())
    assert [request.names for request in together] == [
        request.names for file in files for request in Reading([file]).requests()
    ]
    assert reading.lines == 4
    assert not reading.captured


def test_blank_lines_are_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"\n  \n{json.dumps(unique(1)[0])}\n\nnonsense\n")
    reading = Reading([str(file)])
    assert len(list(reading.requests())) == 1
    assert reading.lines == 2
    assert reading.unusable["not JSON"].first == [f"{file}:5"]


def test_unusable_lines_are_counted_by_cause_and_the_first_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ["secret"] * 8 + unique(1) + ["[]", "{}"])
    reading = Reading([file])
    assert len(list(reading.requests())) == 1
    assert reading.unusable_lines == 10
    assert {cause: unusable.count for cause, unusable in reading.unusable.items()} == {
        "not JSON": 8,
        "not a JSON object": 1,
        "no prompt that can be read": 1,
    }
    assert reading.unusable["not JSON"].first == [f"{file}:{number}" for number in range(1, 6)]
    assert "secret" not in repr(reading)


def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.jsonl", unique(3))
    packed = tmp_path / "b.data"
    packed.write_bytes(gzip.compress(Path(plain).read_bytes()))
    assert [r.names for r in Reading([str(packed)]).requests()] == [
        r.names for r in Reading([plain]).requests()
    ]


def test_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(write(tmp_path / "a.jsonl", unique(3))).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
    assert len(list(Reading(["-"]).requests())) == 3


def test_a_line_that_is_too_long_is_skipped_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "MOST_LINE_BYTES", 4096)
    file = write(tmp_path / "a.jsonl", [{"prompt": "x" * 20_000}, *unique(1, tokens=100)])
    reading = Reading([file])
    assert len(list(reading.requests())) == 1
    assert reading.lines == 2
    (unusable,) = reading.unusable.values()
    assert unusable.first == [f"{file}:1"]


def test_a_capture_is_told_by_its_first_line(tmp_path: Path) -> None:
    line = CapturedRequest(time=1.0, api="chat", tokens=10, levels="")
    file = tmp_path / "capture.jsonl"
    lines = [CaptureHead(sample=0.5), line, line]
    file.write_bytes(b"\n".join(msgspec.json.encode(part) for part in lines))
    reading = Reading([str(file), write(tmp_path / "a.jsonl", unique(1))])
    assert len(list(reading.requests())) == 3
    assert reading.captured
    assert reading.sample == 0.5
    assert reading.lines == 3


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.jsonl cannot be read: No such file"):
        list(Reading([str(tmp_path / "missing.jsonl")]).requests())


def test_a_damaged_compressed_file_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(Path(write(tmp_path / "a.jsonl", unique(200))).read_bytes())
    file = tmp_path / "a.gz"
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="damaged after line"):
        list(Reading([str(file)]).requests())


def test_a_capture_of_another_format_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ['{"capture":9}'])
    with pytest.raises(InputError, match="a capture of format 9"):
        list(Reading([file]).requests())
