"""`prefix-router analyze`, in small."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from prefix_router import cli
from tests.support.recorded import documents, unique, write

SMALL = ("--replicas", "2", "--load", "0.3", "--jobs", "1", "--output-tokens", "8")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path / "traffic.jsonl", documents(30, document_tokens=200))


def test_it_prints_the_analysis_and_writes_what_was_asked_for(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, report = tmp_path / "found.json", tmp_path / "report.html"
    assert cli.main(["analyze", file, *SMALL, "--json", str(found), "--report", str(report)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Expect ")
    assert printed.err == ""
    assert json.loads(found.read_text())["input"]["requests"] == 30
    assert report.read_text().startswith("<!DOCTYPE html>")


def test_the_command_in_the_report_gives_the_same_again(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, report = (tmp_path / name for name in ("1.json", "2.json", "report.html"))
    flags = ["--path", "/v1/chat/completions", "--seed", "3", "--requests", "20", "--json", str(first)]
    assert cli.main(["analyze", file, *SMALL, *flags, "--report", str(report)]) == 0
    command = report.read_text().partition("<pre>prefix-router analyze")[2].partition("</pre>")[0]
    assert cli.main(["analyze", *shlex.split(command), "--json", str(second)]) == 0
    capsys.readouterr()
    assert json.loads(first.read_text()) == json.loads(second.read_text())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there is nothing in it"),
        ("nonsense\n", "none of 1 lines is a request to analyze: not JSON (1: "),
        ('{"capture":7}\n', "a capture of format 7; this version reads format 1"),
    ],
)
def test_what_cannot_be_used_is_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    file = tmp_path / "traffic.jsonl"
    file.write_text(content)
    assert cli.main(["analyze", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("prefix-router analyze: ")
    assert message in error
    assert "nonsense" not in error


def test_a_file_that_is_not_there_is_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["analyze", "/missing.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "prefix-router analyze: /missing.jsonl cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize("flags", [("--load", "0"), ("--replicas", "0"), ("--json", "/missing/x.json")])
def test_a_wrong_flag_is_exit_status_2(
    file: str, capsys: pytest.CaptureFixture[str], flags: tuple[str, str]
) -> None:
    assert cli.main(["analyze", file, *flags]) == 2
    assert flags[0] in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "traffic.jsonl", unique(2))
    report = tmp_path / "report.html"
    report.symlink_to(tmp_path / "missing" / "report.html")
    assert cli.main(["analyze", file, *SMALL, "--report", str(report)]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
