"""The programs that put the router under fire still work, and what they promise holds at a small scale."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str, output: Path) -> dict[str, Any]:
    """Run a program to its end and return what it has written."""
    finished = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program}", *arguments, "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (output / f"{program}.md").read_text().startswith("# ")
    document: dict[str, Any] = json.loads((output / f"{program}.json").read_text())
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
