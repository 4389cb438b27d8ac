"""What the launchers of other routers share: an environment of their own, and their version in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from conformance.launchers.base import RunningRouter, StartError, json_of
from conformance.model import CaseFailed
from conformance.wire import Answer, BrokenError, ClosedError

ENVIRONMENTS = Path(os.environ.get("CONFORMANCE_PEERS", Path(__file__).resolve().parents[2] / ".venv-peers"))
"""Where `scripts/setup_peers.sh` installs them, one folder for each."""


def program(name: str) -> str:
    """Return the path of a peer's command. Raises StartError when it is not installed."""
    path = ENVIRONMENTS / name / "bin" / name
    if not path.exists():
        raise StartError(f"{path} is missing: run scripts/setup_peers.sh")
    return str(path)


def installed_version(package: str) -> str:
    """Return the version of a package in its own environment."""
    python = ENVIRONMENTS / package / "bin" / "python"
    code = f"from importlib.metadata import version; print(version({package!r}))"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    return done.stdout.strip() or "unknown"


async def worker_loads(router: RunningRouter) -> dict[str, int] | None:
    """Return URL -> requests in flight, as `GET /workers` has it; None when it cannot be read."""
    workers = await _workers(router)
    return None if workers is None else {worker["url"]: int(worker["load"]) for worker in workers}


async def worker_ids(router: RunningRouter) -> dict[str, str]:
    """Return URL -> id, as `GET /workers` has it; the URL itself where there is no id."""
    return {worker["url"]: worker.get("id", worker["url"]) for worker in await _workers(router) or ()}


async def expect_ok(answer: Answer) -> None:
    """Raise CaseFailed unless `answer` is a success."""
    if answer.status >= 300:
        raise CaseFailed(f"the change of backends was refused: {answer}")


async def _workers(router: RunningRouter) -> list[dict[str, Any]] | None:
    try:
        document = json_of(await router.admin("/workers"))
    except (OSError, TimeoutError, ClosedError, BrokenError):
        return None
    return document.get("workers") if isinstance(document, dict) else None
