"""Nothing that the suite starts outlives it, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.support.vllm.managed_process import ManagedProcess

ROOT = Path(__file__).parents[2]

# Starts a helper that does not care about the end of its parent, as vLLM does, and says its process id.
SERVER = """
import subprocess
helper = subprocess.Popen(["sleep", "600"])
print(helper.pid, flush=True)
helper.wait()
"""

# A test run: starts that server, tells the helper's process id on its own output, and goes on.
TEST_RUN = """
import sys
from pathlib import Path
from benchmarks.support.vllm.managed_process import ManagedProcess
log = Path(sys.argv[1])
server = ManagedProcess("server", [sys.executable, "-c", sys.argv[2]], {}, log)
server.wait_until(lambda: log.read_text().endswith("\\n"), timeout_seconds=30)
print(log.read_text(), end="", flush=True)
sys.stdin.read()
"""


def test_stopping_it_stops_its_helpers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = ManagedProcess("server", [sys.executable, "-c", SERVER], {}, log)
    process.wait_until(lambda: log.read_text().endswith("\n"), timeout_seconds=30)
    helper = psutil.Process(int(log.read_text()))
    process.stop()
    process.stop()
    assert not process.is_running
    assert has_ended(helper)


def test_a_test_run_that_is_killed_takes_its_servers_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TEST_RUN, str(tmp_path / "log"), SERVER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        helper = psutil.Process(int(run.stdout.readline()))
        run.kill()
    assert has_ended(helper)


def test_a_server_that_exits_at_once_is_an_error_that_shows_its_last_words(tmp_path: Path) -> None:
    process = ManagedProcess("server", ["sh", "-c", "echo no such model; exit 3"], {}, tmp_path / "log")
    try:
        with pytest.raises(RuntimeError, match=r"server exited with 3(?s:.*)no such model"):
            process.wait_until(lambda: False, timeout_seconds=30)
    finally:
        process.stop()


def has_ended(process: psutil.Process) -> bool:
    """Whether it ends within a bound."""
    _, alive = psutil.wait_procs([process], timeout=30)
    return not alive or process.status() == psutil.STATUS_ZOMBIE
