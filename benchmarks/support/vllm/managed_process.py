"""A server as a child process: started in a group of its own, awaited, stopped, and never left behind.

Its output goes to a file, whose end is shown when it does not come up. It is stopped through its own process
id: first politely, then by killing its group, which holds the helpers that it started.

vLLM's helpers survive their parent, and a replica is 3 GB. So beside each child waits a guard in the same
group, reading from a pipe whose other end only this process holds: when the test run ends in whatever way,
even killed, the kernel closes the pipe, the read returns, and the guard ends the group. The guard also keeps
the group's id from being given to strangers until the group is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_UNDER_GUARD = 'exec 3<&0; (read -r _ <&3; kill -KILL 0) & exec "$@" 3<&- </dev/null'
"""The command takes the place of this shell, so that the child's process id is the command's own."""

_POLL_SECONDS = 0.25
_SHOWN_LOG_LINES = 40


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers_200(url: str, timeout_seconds: float = 5.0) -> bool:
    """Whether a GET of `url` gives 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class ManagedProcess:
    """One running child process and the group it leads."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        self._group_ended = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", _UNDER_GUARD, "sh", *command],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the child itself has not exited."""
        return self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Return once `ready()` holds; raise RuntimeError when the child exits or the bound passes first."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if not self.is_running:
                raise RuntimeError(f"{self.name} exited with {self._process.returncode}\n{self._log_end()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} is not ready after {timeout_seconds:.0f} s\n{self._log_end()}"
                )
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """End the whole group at once, as a crash of its machine would."""
        if not self._group_ended:
            self._group_ended = True
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def stop(self, grace_seconds: float = 20.0) -> None:
        """Ask the child to exit, wait for it, then end whatever its group still holds. Safe to call twice."""
        if self.is_running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
        self.kill()

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- end of {self._log} ---", *lines[-_SHOWN_LOG_LINES:]])
