from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.micro.history import Measured, Run, UnknownRevisionError, append, load, of_revision


def run(revision: str, date: str = "2026-01-01T00:00:00+00:00") -> Run:
    results = {"key/chat": Measured(120.5, 100.0, 1234.5), "ring/owner": Measured(5.0, 4.0, None)}
    return Run(date=date, revision=revision, python="3.11.7", cpu="a processor", results=results)


def test_what_is_added_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert load(path) == []
    append(path, run("aaaaaaa"))
    append(path, run("bbbbbbb+"))
    assert load(path) == [run("aaaaaaa"), run("bbbbbbb+")]
    assert path.read_text().count("\n") == 2


def test_a_broken_line_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append(path, run("aaaaaaa"))
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(msgspec.DecodeError):
        load(path)


@pytest.mark.parametrize("asked", ["aaaaaaa", "aaaa", "aaaaaaa0123456789"])
def test_a_revision_may_be_shorter_or_longer_than_what_is_stored(asked: str) -> None:
    assert of_revision([run("aaaaaaa"), run("bbbbbbb")], asked).revision == "aaaaaaa"


def test_of_several_runs_of_a_revision_the_newest_counts() -> None:
    older, newer = run("aaaaaaa", "2026-01-01"), run("aaaaaaa+", "2026-01-02")
    assert of_revision([older, newer, run("bbbbbbb")], "aaaaaaa") is newer


@pytest.mark.parametrize("asked", ["ccccccc", "a"])
def test_an_unknown_revision_is_said_to_be_unknown(asked: str) -> None:
    with pytest.raises(UnknownRevisionError, match=asked):
        of_revision([run("aaaaaaa")], asked)
