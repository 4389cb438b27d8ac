"""`prefix-router simulate`, in small."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prefix_router import cli
from prefix_router.fleetsim.command.progress import ProgressBar
from prefix_router.fleetsim.command.sources import at_times
from prefix_router.fleetsim.policies import POLICY_NAMES
from prefix_router.fleetsim.workloads.catalogue import WORKLOADS
from prefix_router.routing.strategies import STRATEGY_NAMES
from tests.support.simulated import simulated

SMALL = ("--requests", "60", "--replicas", "3", "--jobs", "1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def simulate(*flags: str) -> int:
    return cli.main(["simulate", *SMALL, *flags])


def rows_of(tmp_path: Path, *flags: str) -> list[dict[str, Any]]:
    file = tmp_path / "rows.json"
    assert simulate("--json", str(file), *flags) == 0
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    return rows


def write_azure(path: Path, seconds: list[int]) -> str:
    lines = [f"2023-11-16 18:15:{second:02}.0000000,100,10" for second in seconds]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    return str(path)


def test_there_is_a_row_for_each_combination_in_order(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path,
        *("--workload", "sagemaker", "--workload", "unique:prompt_tokens=200"),
        *("--strategies", "random,prefix_aware", "--load", "0.3,1"),
    )
    assert [(row["workload"], row["load"], row["strategy"]) for row in rows] == [
        ("sagemaker", 0.3, "random"),
        ("sagemaker", 0.3, "prefix_aware"),
        ("sagemaker", 1.0, "random"),
        ("sagemaker", 1.0, "prefix_aware"),
        ("unique:prompt_tokens=200", 0.3, "random"),
        ("unique:prompt_tokens=200", 0.3, "prefix_aware"),
        ("unique:prompt_tokens=200", 1.0, "random"),
        ("unique:prompt_tokens=200", 1.0, "prefix_aware"),
    ]


def test_a_row_has_what_is_documented(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, "--strategies", "prefix_aware", "--load", "0.4", "--routers", "2")
    assert row["requests"] == 60
    assert row["routers"] == 2
    assert row["failed"] == 0
    assert 0 < row["hit_rate"] <= row["ideal_hit_rate"] < 1
    assert row["requests_per_second"] > 0
    assert 0 <= row["overflow_rate"] < 1
    assert 1 / 3 <= row["share_max"] <= 1
    assert row["throughput_tokens_per_second"] > 0
    for times in (row["ttft_ms"], row["e2e_ms"]):
        assert 0 < times["p50"] <= times["p90"] <= times["p99"]


def test_affinity_finds_more_than_chance(tmp_path: Path) -> None:
    random, aware = rows_of(tmp_path, "--strategies", "random,prefix_aware", "--load", "0.3")
    assert aware["hit_rate"] > random["hit_rate"] + 0.1


def test_processes_make_no_difference(tmp_path: Path) -> None:
    flags = ("--strategies", "random,prefix_aware", "--load", "0.5")
    assert rows_of(tmp_path, *flags, "--jobs", "2") == rows_of(tmp_path, *flags)


def test_the_table_has_every_strategy_under_every_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--strategies", "random,plain_ring", "--load", "0.3,0.6") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("sagemaker: 60 requests; with ideal caches ")
    assert [line.split()[0] for line in printed.out.splitlines() if line][1:] == [
        *("load", "random", "plain_ring", "load", "random", "plain_ring")
    ]
    assert printed.err == ""


def test_without_flags_sagemakers_workload_is_run_under_the_routers_own_strategies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate("--load", "0.5") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:]]
    assert names[0] == "random"
    assert sorted(names) == sorted(STRATEGY_NAMES)


def test_one_strategy_can_be_compared_with_itself_at_several_depths(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    written = "plain_ring,plain_ring:4096,plain_ring:auto,adaptive"
    flags = ("--workload", "documents", "--load", "0.3", "--replicas", "7", "--requests", "600")
    rows = rows_of(tmp_path, "--strategies", written, *flags, "--report", str(report))
    assert [row["strategy"] for row in rows] == written.split(",")
    fixed, deep, auto, _adaptive = rows
    assert fixed["share_max"] == 1
    assert deep["share_max"] < 0.5
    assert auto["share_max"] < 0.9
    html = report.read_text()
    assert "<span>plain_ring:auto" in html or "plain_ring:auto</" in html
    assert f"--strategies {written}" in html


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_can_be_simulated(tmp_path: Path, name: str) -> None:
    (row,) = rows_of(tmp_path, "--workload", name, "--strategies", "prefix_aware", "--load", "0.5")
    assert (row["workload"], row["requests"], row["failed"]) == (name, 60, 0)


def test_a_trace_is_called_by_the_name_of_its_file(tmp_path: Path) -> None:
    trace = write_azure(tmp_path / "code.azure.csv", [1, 2, 5])
    (row,) = rows_of(tmp_path, "--trace", trace, "--strategies", "random", "--load", "0.5")
    assert (row["workload"], row["requests"], row["hit_rate"]) == ("code", 3, 0.0)


def test_arrivals_can_be_those_of_an_azure_trace(tmp_path: Path) -> None:
    # Half of the requests come together: the queue is longer than with arrivals of their own.
    arrivals = write_azure(tmp_path / "a.csv", [1] * 30 + [50] * 30)
    flags = ("--workload", "unique", "--strategies", "random", "--load", "0.5")
    (own,) = rows_of(tmp_path, *flags)
    (bursts,) = rows_of(tmp_path, *flags, "--arrivals", f"azure:{arrivals}")
    assert bursts["ttft_ms"]["p50"] > 2 * own["ttft_ms"]["p50"]


def test_arrivals_are_repeated_as_often_as_needed() -> None:
    requests = at_times([simulated([number], number) for number in range(5)], [0.0, 1.0, 4.0])
    assert [request.arrival_seconds for request in requests] == [0, 1, 4, 6, 7]
    assert [request.blocks for request in requests] == [(0,), (1,), (2,), (3,), (4,)]


def test_prompts_that_are_too_long_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--workload", "unique", "--strategies", "random", "--load", "0.5")
    (row,) = rows_of(tmp_path, *flags, "--most-prompt-tokens", "1000")
    assert 10 < row["requests"] < 50
    assert simulate(*flags, "--most-prompt-tokens", "1") == 2
    assert "unique has no prompt of at most 1 tokens" in capsys.readouterr().err


def test_what_happens_to_the_fleet_shows(tmp_path: Path) -> None:
    flags = ("--workload", "unique", "--strategies", "random", "--load", "0.9")
    (steady,) = rows_of(tmp_path, *flags)
    (shrunk,) = rows_of(tmp_path, *flags, "--events", "leave@0:1,leave@0:2")
    assert shrunk["share_max"] > 0.9 > steady["share_max"]


def test_flags_reach_the_fleet(tmp_path: Path) -> None:
    flags = ("--workload", "documents", "--strategies", "prefix_aware", "--load", "0.2")
    (one_home,) = rows_of(tmp_path, *flags, "--concurrency-threshold", "1000")
    (homes,) = rows_of(tmp_path, *flags, "--concurrency-threshold", "1000", "--prefix-tokens", "4000")
    (overflowing,) = rows_of(tmp_path, *flags, "--concurrency-threshold", "1")
    (smaller,) = rows_of(tmp_path, *flags, "--profile", "llama-3.1-8b-h100")
    assert one_home["share_max"] == 1
    assert homes["share_max"] < 1
    assert overflowing["overflow_rate"] > 0
    assert smaller["requests_per_second"] != one_home["requests_per_second"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--workload", "x"), "there is no workload 'x'; there are " + ", ".join(WORKLOADS)),
        (("--strategies", "x"), "there is no strategy 'x'; there are " + ", ".join(POLICY_NAMES)),
        (("--strategies", "random:64"), "random has no depth to set; prefix_aware, "),
        (("--profile", "x"), "invalid choice: 'x' (choose from 'llama-3.1-70b-h100-tp4'"),
        (("--trace", "/none"), "/none cannot be read: No such file or directory"),
        (("--arrivals", "file"), "expected azure:FILE, got 'file'"),
        (("--arrivals", "azure:/none"), "/none cannot be read"),
        (("--load", "0.5,0"), "must be above 0, got 0.5,0"),
        (("--load", "nan"), "must be above 0"),
        (("--load", "inf"), "must be above 0"),
        (("--load", "much"), "expected numbers like 0.5,0.8, got 'much'"),
        (("--requests", "0"), "must be at least 1, got 0"),
        (("--replicas", "many"), "expected a whole number, got 'many'"),
        (("--events", "leave@1:9"), "replica 9 cannot leave at 1 s"),
        (("--json", "/none/x.json"), "/none/x.json cannot be written: there is no such directory"),
        (("--report", "/"), "/ cannot be written"),
    ],
)
def test_what_cannot_be_used_is_status_2_and_said(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert simulate(*flags) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_a_trace_that_is_broken_further_down_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.csv"
    write_azure(file, [1, 2])
    file.write_text(file.read_text() + "\nbroken")
    assert simulate("--trace", str(file)) == 2
    assert f"prefix-router simulate: {file}: line 4: expected TIMESTAMP" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_in_the_end_is_status_1_and_the_table_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate("--strategies", "random", "--load", "0.5", "--json", "/dev/full") == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("sagemaker: 60 requests")
    assert printed.err == ("prefix-router simulate: /dev/full cannot be written: No space left on device\n")


def test_the_report_names_a_command_that_gives_the_same_results(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    flags = ("--workload", "hot_prefix:share=0.25", "--strategies", "random,prefix_aware", "--load", "0.5")
    events = ("--events", "join@0.1,leave@0.2:0", "--routers", "2", "--seed", "7", "--prefix-tokens", "512")
    first = rows_of(tmp_path, *flags, *events, "--report", str(report))
    command = report.read_text().partition("<pre>")[2].partition("</pre>")[0]
    program, name, *again = shlex.split(command)
    assert (program, name) == ("prefix-router", "simulate")
    second = tmp_path / "again.json"
    assert cli.main(["simulate", *again, "--jobs", "1", "--json", str(second)]) == 0
    assert json.loads(second.read_text()) == first


# Progress.


def test_a_terminal_gets_a_bar_that_is_gone_in_the_end() -> None:
    terminal = Terminal()
    with ProgressBar(terminal) as bar:
        bar.show(0.5, "sagemaker")
        assert "[###############...............]  50% sagemaker" in terminal.getvalue()
        before = terminal.getvalue()
        bar.show(0.5, "sagemaker")
        assert terminal.getvalue() == before
        bar.show(1.0, "x")
    last = terminal.getvalue().split("\r")[-2:]
    assert last[0].strip() == ""
    assert last[1] == ""


def test_nothing_but_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar.show(0.5, "sagemaker")
    assert stream.getvalue() == ""


def test_progress_is_shown_while_processes_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    rows_of(tmp_path, "--strategies", "random,prefix_aware", "--load", "0.5", "--jobs", "2")
    assert " 100% sagemaker" in terminal.getvalue()


def started_children(process: subprocess.Popen[bytes]) -> list[str]:
    """The ids of its two processes, once they are there."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    while len(children.read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    started = children.read_text().split()
    assert len(started) == 2
    return started


def alive(pid: str) -> bool:
    """Whether a process is there and is more than its exit status."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_an_interrupt_ends_all_processes() -> None:
    command = [sys.executable, "-m", "prefix_router", "simulate", "--jobs", "2", "--load", "0.9,1"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # What a shell runs in the background ignores interrupts, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    started = started_children(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == b""
    assert not any(alive(pid) for pid in started)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "prefix_router", "simulate", "--jobs", "2", "--load", "0.9,1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = started_children(process)
    process.send_signal(number)
    process.wait(timeout=30)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in started)


def test_a_process_that_is_killed_is_status_1_and_said() -> None:
    command = [sys.executable, "-m", "prefix_router", "simulate", "--jobs", "2", "--load", "0.9,1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    os.kill(int(started_children(process)[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith(b"prefix-router simulate: a process was killed")
