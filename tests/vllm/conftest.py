"""Two real vLLM replicas for the whole run, and routers in front of them.

The replicas are started once, together, and shared. A test that takes `doomed_replica` kills it, so those
tests are moved behind all others.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.vllm.paths import BUILD, LOGS, VLLM_ENVIRONMENT
from tests.vllm.replica import Replica, threads_per_replica
from tests.vllm.report import RESULTS_TABLE
from tests.vllm.router import Router, StartRouter, running_router

REPLICA_COUNT = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "doomed_replica" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    table = config.stash.get(RESULTS_TABLE, None)
    if table is not None:
        terminalreporter.section("real vLLM")
        terminalreporter.write_line(table)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    python = VLLM_ENVIRONMENT / "bin" / "python"
    if not (VLLM_ENVIRONMENT / "setup-stamp").exists():
        pytest.skip("no vLLM here: run `make test-vllm`, or scripts/setup_vllm.sh .venv-vllm once")
    return python


@pytest.fixture(scope="session")
def tiny_model(vllm_python: Path) -> Path:
    directory = BUILD / "tiny-model"
    script = Path(__file__).with_name("tiny_model.py")
    subprocess.run([vllm_python, script, directory], check=True, timeout=120)
    return directory


@pytest.fixture(scope="session")
def replicas(vllm_python: Path, tiny_model: Path) -> Iterator[tuple[Replica, ...]]:
    threads = threads_per_replica(REPLICA_COUNT)
    with ExitStack() as cleanup:
        started: list[Replica] = []
        for number in range(1, REPLICA_COUNT + 1):
            replica = Replica(vllm_python, tiny_model, LOGS / f"replica-{number}.log", threads)
            cleanup.callback(replica.process.stop)
            started.append(replica)
        for replica in started:
            replica.wait_until_ready()
        yield tuple(started)


@pytest.fixture(scope="session")
def start_router(replicas: tuple[Replica, ...]) -> StartRouter:
    """Call it with a strategy for a context manager that runs a router of its own."""
    return lambda strategy: running_router(replicas, strategy, LOGS / f"router-{strategy}.log")


@pytest.fixture(scope="module")
def router(start_router: StartRouter) -> Iterator[Router]:
    """A router with the default strategy, one for each test module."""
    with start_router("prefix_aware") as running:
        yield running


@pytest.fixture
def doomed_replica(replicas: tuple[Replica, ...]) -> Replica:
    """The replica that the test may kill; whoever takes this runs last."""
    return replicas[0]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as running:
        yield running
