"""The tables of docs/metrics.md are what the catalogue says: run `make reference` when they are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefix_router.observe import reference
from prefix_router.observe.catalogue import CATALOGUE, PREFIX, Group, Kind, Metric

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == reference.updated(text), "run `make reference`"


def test_the_document_uses_no_name_that_does_not_exist() -> None:
    known = {PREFIX + metric.name for metric in CATALOGUE}
    used = set(re.findall(rf"\b{PREFIX}\w+", DOCUMENT.read_text(encoding="utf-8"))) - {PREFIX}
    assert used
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in used} <= known


def test_a_table_has_a_row_for_each_metric_and_no_bar_ends_a_cell_too_early() -> None:
    metric = Metric("x_total", Kind.COUNTER, ("a", "b"), "1|2", "Means x.", "You see x.")
    assert reference.tables([Group("Title", (metric,))]).splitlines() == [
        "### Title",
        "",
        "| name | type | labels | unit | meaning | look here when |",
        "|---|---|---|---|---|---|",
        r"| `x_total` | counter | `a`, `b` | 1\|2 | Means x. | You see x. |",
    ]


def test_what_stands_around_the_tables_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "metrics.md"
    file.write_text(
        f"before\n{reference.BEGIN}\nrows of yesterday\n{reference.END}\nafter\n", encoding="utf-8"
    )
    assert reference.main([str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{reference.BEGIN}\n\n### ")
    assert text.endswith(f"\n\n{reference.END}\nafter\n")
    assert "yesterday" not in text
    assert reference.updated(text) == text


@pytest.mark.parametrize("text", ["", reference.BEGIN, f"{reference.END} {reference.BEGIN}"])
def test_a_document_without_markers_is_refused_and_not_touched(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "metrics.md"
    file.write_text(text, encoding="utf-8")
    assert reference.main([str(file)]) == 2
    assert file.read_text(encoding="utf-8") == text
    assert reference.BEGIN in capsys.readouterr().err


def test_no_file_is_a_mistake_that_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")
