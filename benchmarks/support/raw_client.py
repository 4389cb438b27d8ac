"""A client that opens one connection, sends one request and says exactly what came back.

It believes nothing: an answer is good only when its framing is complete and its content is the one that this
very request asked for. Everything else has a name (`Seen`).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import Enum


class Seen(Enum):
    """What a client saw of its request."""

    GOOD = "good"
    """A whole 200, with the content that was asked for."""
    STATUS = "status"
    """A whole answer with another status."""
    BROKEN = "broken"
    """An answer that began and broke off, visibly."""
    WRONG = "wrong"
    """A whole 200 whose content is not the one that was asked for. Must never be."""
    NO_ANSWER = "no_answer"
    """The connection was refused, or ended before a byte of an answer. Must never be."""
    HUNG = "hung"
    """Nothing within the client's patience. Must never be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. status: 0 without one. backend: as named by the router, empty without one."""

    seen: Seen
    status: int = 0
    backend: str = ""
    began_at: float = 0.0
    seconds: float = 0.0
    code: str = ""

    @property
    def kind(self) -> str:
        """Return the word under which it is counted: `good`, `broken`, `504`, …"""
        return str(self.status) if self.seen is Seen.STATUS else self.seen.value


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. play: the backend's `X-Play`. events: of the stream that must come, 0 for no stream."""

    nonce: str
    text: str
    play: str = "answer"
    events: int = 0

    def wire(self) -> bytes:
        """Return the request as it goes on the wire."""
        stream = b"true" if self.events else b"false"
        content = self.text.encode()
        body = b'{"model":"m","stream":%b,"messages":[{"role":"user","content":"%b"}]}' % (stream, content)
        return (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\n"
            b"X-Nonce: %b\r\nX-Play: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (self.nonce.encode(), self.play.encode(), len(body), body)
        )

    def expected(self) -> bytes:
        """Return the body of a good answer."""
        nonce = self.nonce.encode()
        if not self.events:
            return b'{"nonce":"%b"}' % nonce
        events = [
            b'data: {"choices":[{"index":0,"delta":{"content":"%b %d"}}]}\n\n' % (nonce, number)
            for number in range(self.events)
        ]
        return b"".join(events) + b"data: [DONE]\n\n"


@dataclass(slots=True)
class Head:
    """The head of an answer."""

    status: int
    headers: dict[str, str]

    @classmethod
    def of(cls, head: bytes) -> Head:
        """Take a head apart."""
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in pairs})


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read a framed body to its end. Raises IncompleteReadError, ConnectionError where it breaks off."""
    if head.headers.get("transfer-encoding") == "chunked":
        body = bytearray()
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return bytes(body)
    return await reader.readexactly(int(head.headers.get("content-length", 0)))


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask: Ask) -> Answer:
    """Send one request on an open connection and judge the answer. Raises nothing of the network's."""
    began_at = time.monotonic()
    head = None
    try:
        writer.write(ask.wire())
        head = Head.of(await reader.readuntil(b"\r\n\r\n"))
        body = await read_body(reader, head)
    except (OSError, asyncio.IncompleteReadError):
        if head is None:
            return Answer(Seen.NO_ANSWER, began_at=began_at, seconds=time.monotonic() - began_at)
        seen = Seen.BROKEN
        body = b""
    else:
        seen = Seen.STATUS if head.status != 200 else Seen.GOOD if body == ask.expected() else Seen.WRONG
    backend = head.headers.get("x-prefix-router-backend", "")
    return Answer(seen, head.status, backend, began_at, time.monotonic() - began_at)


async def ask_once(port: int, ask: Ask, patience_seconds: float) -> Answer:
    """Send one request on a connection of its own."""
    began_at = time.monotonic()
    writer = None
    try:
        async with asyncio.timeout(patience_seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            return await exchange(reader, writer, ask)
    except TimeoutError:
        return Answer(Seen.HUNG, began_at=began_at, seconds=patience_seconds)
    except OSError:
        return Answer(Seen.NO_ANSWER, began_at=began_at)
    finally:
        if writer is not None:
            writer.transport.abort()
