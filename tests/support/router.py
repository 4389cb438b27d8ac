"""A whole router in the test's own event loop, and a client that shows every byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from prefix_router.app import Router
from prefix_router.settings.load import load_text
from prefix_router.settings.model import Settings

QUIET: dict[str, dict[str, Any]] = {
    "listen": {"host": "127.0.0.1", "port": 0},
    "admin": {"host": "127.0.0.1", "port": 0},
    "engine_metrics": {"interval_seconds": 0},
    "models": {"refresh_seconds": 0},
    "health": {"interval_seconds": 3600},
}
"""Listens on free loopback ports and asks backends next to nothing: what a script gets is the test's own."""


def settings_for(urls: Iterable[str], **sections: Any) -> Settings:
    """Return settings for backends named a, b, c, …; sections are merged over `QUIET`, one level deep."""
    backends = [{"url": url, "name": chr(ord("a") + at)} for at, url in enumerate(urls)]
    document: dict[str, Any] = {name: dict(values) for name, values in QUIET.items()}
    document["backends"] = backends
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values} if isinstance(values, dict) else values
    return load_text(msgspec.json.encode(document).decode(), "test", {})


@asynccontextmanager
async def running_router(*urls: str, **sections: Any) -> AsyncIterator[Router]:
    """Run a router in front of `urls`; when it stops, every lease must have been given back."""
    router = Router(settings_for(urls, **sections))
    await router.start()
    try:
        yield router
    finally:
        counters = [member.in_flight for member in router.store.fleet.members]
        await router.stop(grace_seconds=0)
        assert [counter.count for counter in counters] == [0] * len(counters)
        assert router.active == 0


@dataclass
class RawAnswer:
    """A response as bytes. complete: whether the connection gave all that the framing promised."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    complete: bool

    def header(self, name: str) -> str | None:
        values = self.header_values(name)
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def json(self) -> Any:
        return json.loads(self.body)


async def connect(router: Router) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", router.port, limit=1 << 20)


def request_bytes(
    body: bytes | dict[str, Any] = b"",
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Iterable[tuple[str, str]] = (),
    version: str = "1.1",
) -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/{version}", "Host: router.example"]
    lines += [f"{name}: {value}" for name, value in headers]
    if payload or method == "POST":
        lines.append(f"Content-Length: {len(payload)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + payload


async def read_answer(reader: asyncio.StreamReader, *, head_only: bool = False) -> RawAnswer:
    """Read one response; a connection that breaks off makes it incomplete, never an error."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    answer = RawAnswer(int(first.split(" ")[1]), headers, b"", True)
    if head_only or answer.status in (204, 304) or answer.status < 200:
        return answer
    try:
        if answer.header("transfer-encoding") == "chunked":
            body = bytearray()
            try:
                while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
                    body += (await reader.readexactly(size + 2))[:-2]
                await reader.readexactly(2)
            finally:
                answer.body = bytes(body)
        elif (length := answer.header("content-length")) is not None:
            answer.body = await reader.readexactly(int(length))
        else:
            answer.body = await reader.read(-1)
    except asyncio.IncompleteReadError as error:
        answer.body += error.partial if answer.header("content-length") else b""
        answer.complete = False
    except ConnectionError:
        answer.complete = False
    return answer


async def ask(router: Router, *args: Any, **kwargs: Any) -> RawAnswer:
    """Send one request on a connection of its own; arguments as for `request_bytes`."""
    reader, writer = await connect(router)
    try:
        writer.write(request_bytes(*args, **kwargs))
        return await asyncio.wait_for(read_answer(reader, head_only=kwargs.get("method") == "HEAD"), 10)
    finally:
        writer.close()


async def admin(router: Router, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Ask the admin listener."""
    async with aiohttp.ClientSession() as session:
        method = "GET" if body is None else "POST"
        url = f"http://127.0.0.1:{router.admin_port}{path}"
        async with session.request(method, url, data=body) as response:
            return response.status, await response.read()


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """A chat request."""
    return {"messages": [{"role": "user", "content": text}], **fields}


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
