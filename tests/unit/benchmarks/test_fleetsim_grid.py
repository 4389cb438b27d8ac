"""The runs and the page of the routing results, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleetsim_grid import cases, page
from benchmarks.fleetsim_grid.changes import Change, changes, moved_share, recovered_after, refill_seconds
from benchmarks.fleetsim_grid.runs import Case, grid, lengths, merged, run
from prefix_router.fleetsim.result import Outcome
from prefix_router.fleetsim.simulation import simulate
from tests.support.simulated import traffic


def outcome(seconds: float, cached_tokens: int) -> Outcome:
    return Outcome(seconds, "replica-0", 100, 1, cached_tokens, seconds, seconds, None)


def test_strategies_are_written_as_on_the_command_line() -> None:
    assert cases.plan("prefix_aware:auto", routers=8).depth_auto
    assert cases.plan("plain_ring:256").prefix_tokens == 256
    assert cases.plan("plain_ring").prefix_tokens == 1024
    assert Case("plain_ring:256", 0.6).name == "plain_ring"
    assert Case("plain_ring:auto", 0.6).name == "plain_ring:auto"
    assert {case.name for case in (*grid(), *lengths())} == set(cases.STRATEGIES)


def test_a_workload_says_which_of_its_files_is_not_there(tmp_path: Path) -> None:
    workload = cases.Workload("w", 1, trace="a.jsonl", arrivals="b.csv")
    assert workload.missing(tmp_path) == "a.jsonl"
    (tmp_path / "a.jsonl").touch()
    assert workload.missing(tmp_path) == "b.csv"
    assert cases.Workload("unique", 1).missing(tmp_path) is None


def test_new_rows_replace_those_of_the_same_case_only() -> None:
    old: dict[str, Any] = {
        "requests": 1,
        "rows": [
            {"strategy": "random", "load": 0.3, "routers": 1, "hit_rate": 0.1},
            {"strategy": "adaptive", "load": 0.3, "routers": 1, "hit_rate": 0.1},
            {"strategy": "adaptive", "load": 0.3, "routers": 8, "hit_rate": 0.1},
        ],
    }
    new = {"requests": 2, "rows": [{"strategy": "adaptive", "load": 0.3, "routers": 1, "hit_rate": 0.2}]}
    both = merged(old, new)
    assert both["requests"] == 2
    assert [(row["strategy"], row["routers"], row["hit_rate"]) for row in both["rows"]] == [
        ("random", 1, 0.1),
        ("adaptive", 8, 0.1),
        ("adaptive", 1, 0.2),
    ]


def test_everything_is_run_written_and_judged(tmp_path: Path) -> None:
    requests = cases.Workload("sagemaker", 60).make(tmp_path)
    workload = cases.Workload("sagemaker", 60, parts=("rows", "lengths"))
    found = run(workload, requests, ("adaptive", "prefix_aware:auto", "plain_ring", "plain_ring:auto"), 1)
    assert len(found["lengths"]) == len(cases.LENGTHS)
    assert {row["strategy"] for row in found["rows"] if row["load"] == 1.1} == {
        "plain_ring",
        "prefix_aware:auto",
        "adaptive",
    }
    assert all(row["share_min"] <= 1 / 7 <= row["share_max"] for row in found["rows"])
    file = tmp_path / "page.md"
    file.write_text(f"Prose.\n\n{page.BEGIN}\nold\n{page.END}\n\nMore prose.\n")
    # What was not run, the judge is not asked about.
    written = page._grid(found) + page._lengths({"sagemaker": found})
    assert "| `adaptive`, 8 routers |" in written
    assert "| `random` | – |" in written
    assert "| sagemaker |" in written


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Prose.\n")
    with pytest.raises(ValueError, match="has no <!-- tables"):
        page.write_page(file, {"workloads": {}})


def test_prose_around_the_tables_stays(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"Prose.\n\n{page.BEGIN}\nold\n{page.END}\n\nMore prose.\n")
    page.write_page(file, {"workloads": {}})
    text = file.read_text()
    assert text.startswith("Prose.\n\n")
    assert text.endswith("\n\nMore prose.\n")
    assert "old\n" not in text
    assert "## Targets" in text


# Changes of the fleet.


def test_a_change_moves_prefixes_that_stay_when_nothing_happens() -> None:
    requests = traffic(1200, prefixes=300)
    row = changes(requests, "plain_ring", Change.JOIN)
    assert row["moved_share_if_nothing_happens"] == 0
    assert 0.02 < row["moved_share"] < 0.3
    assert row["failed"] == 0
    assert row["deepest_loss"] > 0


def test_prefixes_that_came_only_once_cannot_move() -> None:
    requests = traffic(40, prefixes=10)
    result = simulate(requests, cases.plan("round_robin"))
    assert 0 < moved_share(requests, result, 20) <= 1
    assert moved_share(requests, result, 0) == 0


def test_hit_rates_have_recovered_when_no_later_window_misses() -> None:
    quiet = [outcome(number, 50) for number in range(1000)]
    assert recovered_after(quiet, quiet) == 0
    loses = [outcome(number, 0 if number < 100 else 50) for number in range(1000)]
    assert recovered_after(quiet, loses) == 100.0
    never = [outcome(number, 0 if number > 900 else 50) for number in range(1000)]
    assert recovered_after(quiet, never) is None


def test_a_cache_fills_in_the_time_that_its_tokens_take_to_be_computed() -> None:
    requests = traffic(400, prefixes=40)
    result = simulate(requests, cases.plan("plain_ring"))
    few_hits = simulate(requests, cases.plan("random"))
    assert refill_seconds(result, 7) > refill_seconds(few_hits, 7) > 0
    assert refill_seconds(result, 14) == pytest.approx(2 * refill_seconds(result, 7))
