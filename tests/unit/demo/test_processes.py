from __future__ import annotations

import os
import socket

import aiohttp
import pytest

from prefix_router.demo.processes import ChildProcess, DemoError, usable_port


async def test_a_process_that_ends_while_starting_is_told_with_what_it_said() -> None:
    child = await ChildProcess.start("the thing", "no-such-command")
    try:
        with pytest.raises(DemoError, match=r"(?s)the thing ended while it was starting.*no-such-command"):
            await child.url()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(DemoError, match="ended while it was starting"):
                await child.ready(session, "http://127.0.0.1:9/readyz")
    finally:
        await child.stop()


async def test_a_process_is_found_by_the_url_it_prints_and_stopped_more_than_once() -> None:
    child = await ChildProcess.start("a replica", "simulated-vllm", "--port", "0")
    try:
        url = await child.url()
        async with aiohttp.ClientSession() as session:
            await child.ready(session, f"{url}/health")
        # Ctrl-C in a terminal goes to a whole process group: it must not reach the child.
        assert os.getpgid(child._process.pid) != os.getpgid(0)
    finally:
        await child.stop()
    await child.stop()
    assert not child.running


def test_a_port_that_is_taken_is_told_with_the_flag_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DemoError, match=rf"port {port} cannot be used.*--admin-port"):
            usable_port(port, "--admin-port")


def test_port_zero_is_any_free_one() -> None:
    assert usable_port(0, "--port") > 0
