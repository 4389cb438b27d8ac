"""A router process with several workers, the streams through it, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.processes import RouterProcess, router_process
from tests.support.router import QUIET, RawAnswer, chat, read_answer, request_bytes
from tests.support.scripted_backend import Conversation, ScriptedBackend

ENOUGH = 24
"""Connections of which two workers get at least one each, but for one time in eight million."""

END = b"3\r\nend\r\n0\r\n\r\n"


class HeldBackend(ScriptedBackend):
    """Begins every answer at once and ends it when it is told to."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self.release = asyncio.Event()

    async def _play(self, conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
                continue
            await conversation.start_stream()
            await conversation.chunk(b"one")
            await self.release.wait()
            await conversation.chunk(b"end")
            await conversation.chunk(b"")


@dataclass
class Stream:
    """An answer that has begun. backend: who gives it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    backend: str
    reason: str

    async def finished(self) -> bool:
        """Read what is left; say whether it was all there."""
        try:
            rest = await asyncio.wait_for(self.reader.readuntil(END), 10)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        finally:
            self.writer.close()
        return rest == END


@dataclass
class Workers:
    """A router with workers. Every request comes over a connection of its own."""

    router: RouterProcess
    config: Path

    async def ask(self, text: str = "hello", path: str = "/v1/chat/completions", **fields: Any) -> RawAnswer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.router.port)
        body = fields if path != "/v1/chat/completions" else chat(text, **fields)
        writer.write(request_bytes(body, path))
        try:
            return await asyncio.wait_for(read_answer(reader), 15)
        finally:
            writer.close()

    async def backends(self, texts: Iterable[str]) -> list[str | None]:
        """Who answers these, asked one after the other."""
        return [(await self.ask(text)).header("x-prefix-router-backend") for text in texts]

    async def stream(self, text: str = "hello") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.router.port)
        writer.write(request_bytes(chat(text, stream=True)))
        head = (await asyncio.wait_for(reader.readuntil(b"one\r\n"), 15)).decode()
        found = dict(re.findall(r"x-prefix-router-(\w+): (\S+)", head, re.IGNORECASE))
        return Stream(reader, writer, found["backend"], found["reason"])

    async def admin(self, path: str, *, post: bool = False) -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{self.router.admin_port}{path}"
            async with session.request("POST" if post else "GET", url) as response:
                return response.status, await response.read()

    async def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await self.admin("/status"))[1])
        return document

    async def in_flight(self) -> dict[str, int]:
        return {entry["name"]: entry["in_flight"] for entry in (await self.status())["backends"]}

    async def states(self) -> dict[str, str]:
        return {entry["name"]: entry["state"] for entry in (await self.status())["backends"]}

    async def active(self) -> dict[int, int]:
        """Running requests by process id."""
        return {entry["pid"]: entry["active_requests"] for entry in (await self.status())["workers"]}

    async def metric(self, name: str) -> float:
        """The sum over all series of a metric."""
        text = (await self.admin("/metrics"))[1].decode()
        series = re.findall(rf"^prefix_router_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, series))

    async def refused(self) -> bool:
        """Whether the port takes no connection any more."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.router.port)
        except ConnectionError:
            return True
        writer.close()
        return False


def _document(urls: Iterable[str], **sections: Any) -> str:
    """A configuration for backends a, b, c, …; sections are laid over the quiet ones."""
    quiet = {name: values for name, values in QUIET.items() if name not in ("listen", "admin")}
    backends = [{"url": url, "name": chr(ord("a") + at)} for at, url in enumerate(urls)]
    return json.dumps({**quiet, "backends": backends, **sections})


@asynccontextmanager
async def workers(directory: Path, *urls: str, count: int = 2, **sections: Any) -> AsyncIterator[Workers]:
    """Run a router with `count` workers, with the quiet settings of `running_router`."""
    config = directory / "router.yaml"
    config.write_text(_document(urls, **sections))
    async with router_process("--config", str(config), "--workers", str(count)) as router:
        yield Workers(router, config)
