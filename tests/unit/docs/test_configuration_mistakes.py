"""docs/configuration.md shows a file full of mistakes, and what a person is told is what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefix_router import cli
from tests.support.tools import ROOT

DOCUMENT = ROOT / "docs" / "configuration.md"


def test_the_document_shows_what_the_program_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    [file] = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [said] = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    Path("mistakes.yaml").write_text(file, encoding="utf-8")
    assert cli.main(["check-config", "mistakes.yaml"]) == 2
    assert capsys.readouterr().err == said
