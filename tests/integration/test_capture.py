"""Traffic that a running router has captured, and what `prefix-router analyze` finds in it."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefix_router import cli
from prefix_router.app import Router
from prefix_router.observe import capture as capture_module
from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings
from tests.support.recorded import documents
from tests.support.router import ask, running_router, settings_for, until
from tests.support.workers import workers

FAST = StandInSettings(time_scale=1000.0)
DOCUMENTS, USES = 6, 4


@asynccontextmanager
async def capturing(file: Path, *urls: str) -> AsyncIterator[Router]:
    """A router that captures to `file`. Its settings are read in a thread, since they look at directories."""
    settings = await asyncio.to_thread(settings_for, urls, capture={"path": str(file)})
    router = Router(settings)
    await router.start()
    try:
        yield router
    finally:
        await router.stop(grace_seconds=0)


def questions() -> list[dict[str, Any]]:
    """Four questions to each of six documents of 1,500 tokens, with short answers."""
    bodies = documents(DOCUMENTS * USES, document_tokens=1500, uses=USES)
    return [{**body, "model": "simulated-model", "max_tokens": 3} for body in bodies]


def analyzed(directory: Path) -> dict[str, Any]:
    """What the command finds in the one capture of a directory."""
    (capture,) = directory.glob("*.jsonl")
    found = directory / "found.json"
    flags = ["--replicas", "2", "--jobs", "1", "--load", "0.3", "--json", str(found)]
    assert cli.main(["analyze", str(capture), *flags]) == 0
    document: dict[str, Any] = json.loads(found.read_text())
    return document


def check_sharing(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Three of four requests recur up to their last tokens, in families of four."""
    sharing = document["sharing"]
    count = DOCUMENTS * USES
    assert document["input"]["requests"] == document["input"]["lines"] == count
    row, column = sharing["rows"].index("1k to 4k"), sharing["columns"].index("3–5")
    assert sharing["requests"][row][column] == count
    assert 0.68 < sharing["recurring_share"] < 0.75
    assert document["recommendation"]["strategy"] == "prefix_aware"
    assert document["measured"]["hit_rate"] == pytest.approx(sharing["recurring_share"], abs=0.1)
    assert document["simulation"]["recorded_requests_per_second"] > 0
    assert "alpha" not in capsys.readouterr().out


async def test_analyze_finds_the_sharing_that_was_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "traffic.jsonl"
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(SimulatedVllm(FAST)) for _ in range(2)]
        urls = [server.url for server in servers]
        router = await stack.enter_async_context(capturing(file, *urls))
        for body in questions():
            assert (await ask(router, body)).status == 200
        assert (await ask(router, b"no prompt")).status != 200
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "alpha" not in text
    assert "simulated-model" not in text
    document = await asyncio.to_thread(analyzed, tmp_path)
    check_sharing(document, capsys)


async def test_several_workers_capture_to_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(SimulatedVllm(FAST)) for _ in range(2)]
        urls = [server.url for server in servers]
        capture = {"path": str(captures / "traffic.jsonl")}
        pool = await stack.enter_async_context(workers(tmp_path, *urls, capture=capture))
        for body in questions():
            text = body["messages"][0]["content"]
            assert (await pool.ask(text, model=body["model"], max_tokens=3)).status == 200
        assert await pool.metric("capture_dropped_total") == 0
    document = await asyncio.to_thread(analyzed, captures)
    check_sharing(document, capsys)


async def test_a_reload_begins_and_ends_a_capture(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    async with SimulatedVllm(FAST) as server, running_router(server.url) as router:
        body = questions()[0]
        await ask(router, body)
        wanted = await asyncio.to_thread(settings_for, [server.url], capture={"path": str(file)})
        await router.reload(wanted)
        await ask(router, body)
        await router.reload(settings_for([server.url]))
        await ask(router, body)
    assert len(file.read_text().splitlines()) == 2


async def test_without_a_capture_nobody_is_asked() -> None:
    async with SimulatedVllm(FAST) as server, running_router(server.url) as router:
        await ask(router, questions()[0])
        assert router._capture not in router._observer._observers


async def test_a_capture_that_cannot_be_written_costs_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "MOST_FILES", 0)
    async with SimulatedVllm(FAST) as server, capturing(tmp_path / "traffic.jsonl", server.url) as router:
        assert (await ask(router, questions()[0])).status == 200
        await until(lambda: router.metrics.capture_dropped() == 1)
