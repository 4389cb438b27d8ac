from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.micro import __main__ as program
from benchmarks.micro.history import Measured, Run, load


def run(revision: str, instructions: float = 1000) -> Run:
    results = {"key/chat": Measured(2.0, 1.0, instructions)}
    return Run(date="2026-01-01", revision=revision, python="3.11.7", cpu="a processor", results=results)


@pytest.mark.parametrize(("counted", "status"), [(1099, 0), (1101, 1)])
def test_a_check_fails_when_a_benchmark_has_grown_too_much(
    counted: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(subjects: Sequence[str], *, with_times: bool) -> Run:
        assert (list(subjects), with_times) == (["key"], False)
        return run("bbbbbbb", counted)

    monkeypatch.setattr(program, "measure", measure)
    monkeypatch.setattr(program, "can_count", lambda: True)
    assert program.check([run("aaaaaaa", 500), run("aaaaaaa")], ["key"]) == status


def test_a_check_without_anything_to_compare_with_does_not_pass() -> None:
    assert program.check([], ["key"]) == 2


def test_the_latest_run_is_compared_with_the_one_before_or_with_a_revision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [run("aaaaaaa"), run("bbbbbbb"), run("ccccccc")]
    assert program.compare(runs, "") == 0
    assert "revision bbbbbbb" in capsys.readouterr().out
    assert program.compare(runs, "aaaaaaa") == 0
    assert "revision aaaaaaa" in capsys.readouterr().out


def test_a_revision_without_a_run_cannot_be_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.compare([run("aaaaaaa"), run("bbbbbbb")], "ddddddd") == 2
    assert "ddddddd" in capsys.readouterr().err


def test_a_run_is_kept_as_a_line_of_the_history_and_as_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "HISTORY", tmp_path / "micro.jsonl")
    monkeypatch.setattr(program, "REPORT", tmp_path / "micro.md")
    program.keep(run("aaaaaaa"))
    program.keep(run("bbbbbbb"))
    assert [kept.revision for kept in load(tmp_path / "micro.jsonl")] == ["aaaaaaa", "bbbbbbb"]
    report = (tmp_path / "micro.md").read_text()
    assert "revision bbbbbbb" in report
    assert "make bench-micro" in report
    assert "| key/chat | 2 | 1 | 1,000 |" in report
