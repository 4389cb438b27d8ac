"""A router and the stand-ins behind it as processes, and foreign clients that are run against them.

Three stand-ins generate text and two make embeddings: one router in front of both kinds, which tells them
apart by the model that they serve. A client runs under the Python of `.venv-clients`, where the project is
not installed, and prints one JSON document.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
CLIENT_PYTHON = ROOT / ".venv-clients" / "bin" / "python"
SCRIPTS = ROOT / "tests" / "clients" / "scripts"

CHAT_MODEL = "simulated-model"
EMBEDDING_MODEL = "simulated-embedder"
KEY = "a-key-of-the-engines"
"""What the stand-ins ask for; the router passes it on and knows nothing of it, unless it is told."""

_STARTS_WITHIN_SECONDS = 30.0
_GENERATING = ("--enable-auto-tool-choice", "--max-model-len", "4096")
_POOLING = ("--runner", "pooling")
_LISTEN = {"listen": {"host": "127.0.0.1", "port": 0}, "admin": {"port": 0}}
_STAND_IN_URL = re.compile(r" on (http://\S+)")
_ROUTER_PORTS = re.compile(r"data on [^ ]+:(\d+), admin on [^ ]+:(\d+)")


@dataclass(frozen=True, slots=True)
class ClientFleet:
    """The running processes. url: of the router, without /v1."""

    url: str
    admin_url: str

    def status(self) -> Any:
        """The router's `/status`."""
        with urllib.request.urlopen(f"{self.admin_url}/status", timeout=10) as response:
            return json.load(response)

    def requests(self) -> dict[str, int]:
        """How many requests each backend has had, by its name."""
        return {backend["name"]: backend["requests"] for backend in self.status()["backends"]}

    def run(self, script: str, *arguments: str) -> Any:
        """What the client script prints. Raises AssertionError with its error output if it fails."""
        command = [str(CLIENT_PYTHON), str(SCRIPTS / f"{script}.py"), self.url, KEY, *arguments]
        ran = subprocess.run(
            command, env=_environment(), capture_output=True, text=True, timeout=50, check=False
        )
        assert ran.returncode == 0, f"{script}:\n{ran.stderr}"
        return json.loads(ran.stdout)


@dataclass(frozen=True, slots=True)
class _Started:
    """A running process, and the file with its error output."""

    process: subprocess.Popen[bytes]
    log: IO[str]


@contextmanager
def client_fleet(*, router_has_key: bool = False) -> Iterator[ClientFleet]:
    """Start the stand-ins and the router on free ports; all are ended afterwards.

    router_has_key: whether the router logs in at the backends, in place of its clients.
    """
    with ExitStack() as stack:
        backends = [_start_stand_in(stack, f"chat-{number}", CHAT_MODEL, *_GENERATING) for number in range(3)]
        backends += [_start_stand_in(stack, f"embed-{n}", EMBEDDING_MODEL, *_POOLING) for n in range(2)]
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "router.json"
        if router_has_key:
            backends = [{**backend, "authorization": f"Bearer {KEY}"} for backend in backends]
        config.write_text(json.dumps({"backends": backends, **_LISTEN}))  # JSON is YAML
        found = _find(stack.enter_context(_started("serve", "--config", str(config))), _ROUTER_PORTS)
        fleet = ClientFleet(f"http://127.0.0.1:{found[1]}", f"http://127.0.0.1:{found[2]}")
        _wait_until_healthy(fleet)
        yield fleet


def _start_stand_in(stack: ExitStack, name: str, model: str, *flags: str) -> dict[str, Any]:
    """Start a stand-in and return the router's entry for it.

    The clients bring the key. So the router cannot ask for the models, and is told them.
    """
    common = ("--port", "0", "--time-scale", "100", "--api-key", KEY, "--model", model)
    log = stack.enter_context(_started("simulated-vllm", *common, *flags))
    return {"name": name, "url": _find(log, _STAND_IN_URL)[1], "models": [model]}


@contextmanager
def _started(*arguments: str) -> Iterator[_Started]:
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([sys.executable, "-m", "prefix_router", *arguments], stderr=log)
        try:
            yield _Started(process, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _find(started: _Started, pattern: re.Pattern[str]) -> re.Match[str]:
    """Wait until the process has logged it. Raises AssertionError with the log if it ends or is late."""
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    ended = False
    while not ended and time.monotonic() < deadline:
        ended = started.process.poll() is not None
        text = os.pread(started.log.fileno(), 1 << 20, 0).decode()  # Leaves the offset that it writes at.
        if found := pattern.search(text):
            return found
        time.sleep(0.05)
    raise AssertionError(f"not started:\n{text}")


def _wait_until_healthy(fleet: ClientFleet) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while any(backend["state"] != "healthy" for backend in fleet.status()["backends"]):
        assert time.monotonic() < deadline, fleet.status()
        time.sleep(0.05)


def _environment() -> dict[str, str]:
    """Next to nothing: no proxy, no key and no setting of whoever runs the tests reaches a client."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": tempfile.gettempdir(),
        "NO_PROXY": "*",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
