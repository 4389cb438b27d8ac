"""Two real vLLM replicas for the whole run, routers in front of them, and a replica with a small cache.

The replicas are started once, together, and shared. A test that takes `doomed_replica` kills it, so those
tests are moved behind all others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from benchmarks.support.vllm.fleet import NoVllmError, build_tiny_model, running_replicas
from benchmarks.support.vllm.fleet import vllm_python as find_vllm_python
from benchmarks.support.vllm.paths import LOGS
from benchmarks.support.vllm.replica import Replica, ReplicaOptions
from benchmarks.support.vllm.router import Router, StartRouter, running_router
from benchmarks.validation.exact import small_cache
from tests.vllm.report import RESULTS_TABLE

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
    try:
        return find_vllm_python()
    except NoVllmError as error:
        pytest.skip(f"{error}, or `make test-vllm`")


@pytest.fixture(scope="session")
def tiny_model(vllm_python: Path) -> Path:
    return build_tiny_model(vllm_python)


@pytest.fixture(scope="session")
def started_replicas(vllm_python: Path, tiny_model: Path) -> Iterator[tuple[Replica, ...]]:
    """All that the tests need, the small one last: together they start in little more time than one."""
    plain = [*[ReplicaOptions()] * REPLICA_COUNT, small_cache(block_size=128, tokens=8192)]
    options = [replace(option, kv_events=True) for option in plain]
    with running_replicas(vllm_python, tiny_model, options, sharing=REPLICA_COUNT) as started:
        yield started


@pytest.fixture(scope="session")
def replicas(started_replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
    """The fleet that routers stand in front of."""
    return started_replicas[:REPLICA_COUNT]


@pytest.fixture(scope="session")
def small_replica(started_replicas: tuple[Replica, ...]) -> Replica:
    """A replica whose KV cache is full after a few prompts; no router knows it."""
    return started_replicas[REPLICA_COUNT]


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
