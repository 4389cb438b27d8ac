"""`prefix-router demo` as a user runs it: a process that starts replicas and a router and stops them all."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
import urllib.request
from typing import Any

import psutil
import pytest

from tests.support.waiting import until

SMALL = ("--replicas", "3", "--prefixes", "6", "--time-scale", "5", "--requests-per-second", "5")


async def start(*flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prefix_router", "demo", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing behind when a test fails."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_once_with_json_prints_the_comparison_and_nothing_else() -> None:
    process = await start("--once", "--json", *SMALL)
    try:
        out, _err = await process.communicate()
    finally:
        await end(process)
    assert process.returncode == 0
    strategies: dict[str, Any] = json.loads(out)["strategies"]
    assert list(strategies) == ["random", "prefix_aware"]
    for result in strategies.values():
        assert result["requests"] == 30
        assert 0 < result["ttft_ms"]["p50"] <= result["ttft_ms"]["p90"] <= result["ttft_ms"]["p99"]
        assert sum(result["share"].values()) == pytest.approx(1)
        assert set(result["share"]) <= {"replica-1", "replica-2", "replica-3"}
    assert set(strategies["random"]["reasons"]) == {"random"}
    assert set(strategies["prefix_aware"]["reasons"]) == {"affinity"}
    # The caches decide this, not the clock: all but the first question to a document can find it.
    assert strategies["prefix_aware"]["hit_rate"] > strategies["random"]["hit_rate"]


async def test_a_port_that_is_taken_is_a_clear_error_and_nothing_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start("--once", "--port", str(port), *SMALL)
        try:
            out, err = await process.communicate()
        finally:
            await end(process)
    assert process.returncode == 1
    assert out == b""
    assert err.decode().startswith(f"prefix-router demo: port {port} cannot be used")
    assert "Traceback" not in err.decode()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_demo_that_stays_up_can_be_used_and_takes_its_processes_with_it(stop: signal.Signals) -> None:
    process = await start("--port", "0", "--admin-port", "0", "--replicas", "2", "--prefixes", "1")
    try:
        assert process.stdout is not None
        text = (await process.stdout.readuntil(b"/status")).decode()
        [status] = re.findall(r"curl (http://\S+/status)", text)
        assert len(json.loads(await asyncio.to_thread(read, status))["backends"]) == 2
        assert "curl -i http://127.0.0.1:" in text

        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        process.send_signal(stop)
        await process.communicate()
        assert process.returncode == 0
        assert not any(child.is_running() for child in children)
    finally:
        await end(process)


async def test_a_demo_interrupted_before_its_end_takes_its_processes_with_it() -> None:
    process = await start("--once", *SMALL, "--time-scale", "0.01")
    try:
        demo = psutil.Process(process.pid)
        await until(lambda: len(demo.children()) == 4)
        children = demo.children()
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
        assert process.returncode == 130
        assert out == b""
        assert b"Traceback" not in err
        assert not any(child.is_running() for child in children)
    finally:
        await end(process)


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        data: bytes = response.read()
        return data
