"""The programs that put a router process under fire, or measure one, work; promises hold at a small scale."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str, output: Path, report: str = "") -> dict[str, Any]:
    """Run a program to its end and return what it has written. report: its name if not the program's."""
    report = report or program
    finished = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program}", *arguments, "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (output / f"{report}.md").read_text().startswith("# ")
    document: dict[str, Any] = json.loads((output / f"{report}.json").read_text())
    return document


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "scenarios",
    [("killed", "breaks off"), ("slow readers", "connections at once")],
    ids=["backends fail", "clients misbehave"],
)
def test_no_request_is_lost_under_fire(scenarios: tuple[str, ...], tmp_path: Path) -> None:
    document = run("chaos", "--tiny", "--only", *scenarios, output=tmp_path)
    assert [scenario["name"] for scenario in document["scenarios"]] == list(scenarios)
    assert document["requests"] > 0
    assert document["lost"] == 0
    assert all(scenario["held"] for scenario in document["scenarios"])


@pytest.mark.timeout(180)
def test_a_soak_ends_as_it_began_and_both_sides_have_counted_the_same(tmp_path: Path) -> None:
    document = run("soak", "--requests", "300", output=tmp_path)
    assert sum(document["seen"].values()) == 300
    assert document["held"]


@pytest.mark.timeout(180)
def test_several_workers_lose_no_request_and_have_a_report_of_their_own(tmp_path: Path) -> None:
    arguments = ("--tiny", "--workers", "2", "--only", "killed")
    document = run("chaos", *arguments, output=tmp_path, report="chaos_2_workers")
    assert (document["workers"], document["lost"]) == (2, 0)
    assert all(scenario["held"] for scenario in document["scenarios"])


@pytest.mark.timeout(180)
def test_what_workers_cost_is_measured_for_each_process(tmp_path: Path) -> None:
    document = run("workers", "--workers", "1", "2", "--requests", "300", output=tmp_path)
    assert [len(measured["each_worker"]) for measured in document["runs"]] == [0, 2]
    assert [measured["bad"] for measured in document["runs"]] == [0, 0]
    shares = [share for one in document["runs"] for share in (one["own_process"], *one["each_worker"])]
    assert all(share["resident_mb"] > share["own_mb"] > 0 for share in shares)


@pytest.mark.timeout(180)
def test_lines_of_workers_end_with_nothing_in_flight(tmp_path: Path) -> None:
    document = run("lines", "--seconds", "0.2", "--rounds", "1", output=tmp_path)
    assert all(result["served"] > 0 for result in document["results"])
    assert [result["left_in_flight"] for result in document["results"]] == [0] * len(document["results"])
