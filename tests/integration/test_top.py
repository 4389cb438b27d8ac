"""`prefix-router top` against a running router: in a pipe, and in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
import termios
from contextlib import suppress

from tests.support.processes import router_process
from tests.support.scripted_backend import ScriptedBackend, answering

TOP = (sys.executable, "-m", "prefix_router", "top")


async def top(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *TOP, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    return process.returncode, out.decode(), error.decode()


async def test_in_a_pipe_it_prints_one_snapshot() -> None:
    async with ScriptedBackend(answering()) as backend, router_process("--backend", backend.url) as router:
        url = f"http://127.0.0.1:{router.admin_port}"
        status, out, _ = await top("--url", url)
        assert status == 0
        assert "prefix_aware" in out
        assert backend.url.removeprefix("http://") in out
        assert "\x1b" not in out
        status, out, _ = await top("--url", url, "--json")
        assert status == 0
        assert len(json.loads(out)["status"]["backends"]) == 1


async def test_nobody_there_is_a_clear_error() -> None:
    status, _, error = await top("--url", "http://127.0.0.1:1")
    assert status == 1
    assert "127.0.0.1:1" in error


async def test_in_a_terminal_it_draws_until_q_and_puts_the_screen_back() -> None:
    async with ScriptedBackend(answering()) as backend, router_process("--backend", backend.url) as router:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 110))
        process = await asyncio.create_subprocess_exec(
            *TOP, "--url", f"http://127.0.0.1:{router.admin_port}", "--interval", "0.2",
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(ours, False)
        seen = b""

        async def until(text: bytes) -> None:
            nonlocal seen
            async with asyncio.timeout(20):
                while text not in seen:
                    with suppress(BlockingIOError, OSError):
                        seen += os.read(ours, 65_536)
                    await asyncio.sleep(0.02)

        try:
            await until(b"FLIGHT")
            assert b"\x1b[?1049h" in seen
            os.write(ours, b"q")
            await until(b"\x1b[?1049l")
            assert await asyncio.wait_for(process.wait(), 10) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)
