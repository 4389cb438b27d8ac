"""A backend whose every byte and every close is written by the test.

A script is an async function that gets each `Conversation` (one client connection) and plays it. The
backend records what it was asked and when its clients went away, so that a test can wait for that instead
of sleeping.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class ReceivedRequest:
    """A request exactly as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first value of a header, None without one."""
        values = self.header_values(name)
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        """Return all values of a header."""
        wanted = name.lower().encode()
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == wanted]

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


@dataclass
class Conversation:
    """One connection of a client."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    backend: ScriptedBackend
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def request(self) -> ReceivedRequest | None:
        """Return the next request, None when the client closed instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        lines = head[:-4].split(b"\r\n")
        method, target, _ = lines[0].decode("latin-1").split(" ", 2)
        headers = []
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers.append((name, value.strip()))
        received = ReceivedRequest(method, target, headers, b"")
        received.body = await self._body(received)
        self.backend.requests.append(received)
        self.backend.asked.set()
        return received

    async def _body(self, request: ReceivedRequest) -> bytes:
        if request.header("transfer-encoding") == "chunked":
            body = bytearray()
            while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
            return bytes(body)
        length = int(request.header("content-length") or 0)
        return await self.reader.readexactly(length)

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def respond(
        self,
        status: int = 200,
        body: bytes = b"{}",
        *headers: tuple[str, str],
        content_type: str = "application/json",
    ) -> None:
        """Send a whole response with a length."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: {content_type}\r\n{extra}"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        await self.send(head.encode("latin-1") + body)

    async def start_stream(self, content_type: str = "text/event-stream") -> None:
        """Send the head of a chunked response."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await self.send(head.encode())

    async def chunk(self, data: bytes) -> None:
        """Send one chunk; an empty one ends the stream."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def client_gone(self) -> None:
        """Wait until the client has closed its side."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.gone.set()

    def reset(self) -> None:
        """Answer with RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Conversation], Awaitable[None]]


class ScriptedBackend:
    """Listens on a free loopback port and plays `script` on every connection, then closes it."""

    def __init__(self, script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[ReceivedRequest] = []
        self.conversations: list[Conversation] = []
        self.asked = asyncio.Event()
        self._host = host
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def work(self) -> list[ReceivedRequest]:
        """What it was asked but for probes."""
        return [request for request in self.requests if request.target != "/health"]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen (again, on the same port as before)."""
        self._server = await asyncio.start_server(
            self._connected, self._host, self.port, limit=1 << 20, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for conversation in self.conversations:
            conversation.writer.transport.abort()
        await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        conversation = Conversation(len(self.conversations), reader, writer, self)
        self.conversations.append(conversation)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self.script(conversation)
        finally:
            self._tasks.discard(task)
            writer.close()


def answering(body: bytes = b"{}", status: int = 200, *headers: tuple[str, str]) -> Script:
    """A backend that answers everything with one response, and keeps connections."""

    async def script(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            await conversation.respond(status, body, *headers)

    return script


def playing(*moves: bytes | None) -> Script:
    """A backend that answers the n-th request of a connection with the n-th bytes; None closes at once."""

    async def script(conversation: Conversation) -> None:
        for move in moves:
            if await conversation.request() is None or move is None:
                return
            await conversation.send(move)
        await conversation.request()

    return script
