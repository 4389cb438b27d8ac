"""`prefix-router stack` as a user runs it: everything is up, can be asked, and is gone after Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from typing import Any

import psutil
import pytest

from tests.support.tools import ROOT, tool
from tests.support.waiting import eventually

RULES = str(ROOT / "config" / "alerts.yml")


async def start(*flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prefix_router", "stack", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def get(url: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(url, timeout=10) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(read)


async def urls(process: asyncio.subprocess.Process) -> dict[str, str]:
    """What it prints once everything is up."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    async with asyncio.timeout(40):
        while "its alerts" not in found:
            line = (await process.stdout.readline()).decode()
            assert line, "it ended while it was starting"
            if match := re.fullmatch(r"  (\S.*?) {2,}(http\S+)\n", line):
                found[match[1]] = match[2]
    return found


async def test_everything_is_up_and_gone_after_ctrl_c() -> None:
    process = await start("--prometheus", tool("prometheus"), "--rules", RULES)
    try:
        found = await urls(process)
        children = psutil.Process(process.pid).children(recursive=True)
        status = json.loads(await get(found["the fleet"]))
        assert len(status["backends"]) == 3
        prometheus = found["Prometheus"].removesuffix("/graph")

        async def seen() -> Any:
            query = f"{prometheus}/api/v1/query?query=prefix_router_requests_total"
            return json.loads(await get(query))["data"]["result"]

        series = await eventually(seen, bool)
        assert series[0]["metric"]["job"] == "prefix-router"
        rules = json.loads(await get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
        assert rules
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    with pytest.raises(urllib.error.URLError):
        await get(found["the fleet"])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--prometheus", "no-such-program"), "there is no program no-such-program"),
        (
            ("--prometheus", sys.executable, "--rules", "no-such-file.yml"),
            "there is no file no-such-file.yml",
        ),
    ],
)
async def test_what_is_missing_is_a_clear_error_and_nothing_is_started(
    flags: tuple[str, ...], says: str
) -> None:
    process = await start(*flags)
    _, error = await process.communicate()
    assert process.returncode == 1
    assert says in error.decode()


async def test_a_program_that_is_no_prometheus_is_a_clear_error() -> None:
    process = await start("--prometheus", "/bin/false")
    _, error = await process.communicate()
    assert process.returncode == 1
    assert "Prometheus ended while it was starting" in error.decode()
