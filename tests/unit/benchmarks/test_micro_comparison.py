from __future__ import annotations

from typing import Any

import pytest

from benchmarks.micro.comparison import caution, comparison_table, flag, grown, results_table
from benchmarks.micro.history import Measured, Run


def run(cpu: str = "a processor", **instructions: float | None) -> Run:
    results = {name: Measured(1200.4, 1000.4, count) for name, count in instructions.items()}
    return Run(date="2026-01-01", revision="aaaaaaa", python="3.11.7", cpu=cpu, results=results)


def rows(table: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {name: rest for name, *rest in cells}


def test_a_run_as_a_table() -> None:
    table = rows(results_table(run(a=12345.6, b=None)))
    assert table == {"a": ["1,200", "1,000", "12,346"], "b": ["1,200", "1,000", "–"]}


def test_a_comparison_shows_both_and_how_the_instructions_changed() -> None:
    table = rows(comparison_table(run(a=1000, b=1000, c=1000), run(a=1060, b=1040, c=900)))
    assert table["a"] == ["1,000", "1,000", "1,000", "1,060", "+6.0%", "MORE"]
    assert table["b"][-2:] == ["+4.0%", ""]
    assert table["c"][-2:] == ["-10.0%", "less"]


def test_what_only_one_run_has_is_in_the_comparison_without_a_change() -> None:
    table = rows(comparison_table(run(gone=1000), run(new=1000)))
    assert table["gone"] == ["1,000", "–", "1,000", "–", "–", ""]
    assert table["new"] == ["–", "1,000", "–", "1,000", "–", ""]


@pytest.mark.parametrize(
    ("changed", "word"), [(None, ""), (0.05, ""), (0.051, "MORE"), (-0.05, ""), (-0.051, "less")]
)
def test_a_change_of_more_than_five_percent_is_flagged(changed: float | None, word: str) -> None:
    assert flag(changed) == word


def test_growth_of_more_than_ten_percent_is_too_much() -> None:
    before = run(a=1000, b=1000, c=1000, uncounted=None)
    assert grown(before, run(a=1110, b=1099, c=500, uncounted=9000, new=9000)) == {"a": pytest.approx(0.11)}


@pytest.mark.parametrize(
    ("other", "said"), [({}, ""), ({"cpu": "another"}, "the processor differed: counts differ with it")]
)
def test_another_processor_is_worth_a_caution(other: dict[str, Any], said: str) -> None:
    assert caution(run(a=1), run(a=1, **other)) == said
