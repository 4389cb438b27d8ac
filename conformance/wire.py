"""HTTP/1.1 as bytes, for both ends of the suite: small, strict, and with nothing hidden.

A library would repair, decode and reframe; the cases are about exactly those bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

HeaderList = list[tuple[str, str]]

MAX_HEAD_BYTES = 1 << 20


class ClosedError(Exception):
    """The other side closed (or reset) the connection where more was promised."""


class BrokenError(Exception):
    """What came is not HTTP/1.1."""


@dataclass
class Head:
    """A start line and headers, in order, names as they came."""

    start: str
    headers: HeaderList
    raw: bytes

    def values(self, name: str) -> list[str]:
        """Return all values of a header, in order."""
        wanted = name.lower()
        return [value for key, value in self.headers if key.lower() == wanted]

    def get(self, name: str) -> str | None:
        """Return the first value of a header, None without one."""
        return next(iter(self.values(name)), None)

    @property
    def chunked(self) -> bool:
        """Whether a chunked body follows."""
        return any("chunked" in value.lower() for value in self.values("transfer-encoding"))


def parse_head(raw: bytes) -> Head:
    """Parse a head, blank line included. Raises BrokenError."""
    start, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BrokenError(f"header line without a colon: {line!r}")
        headers.append((name, value.strip(" \t")))
    return Head(start, headers, raw)


class Inbox:
    """Bytes that came in and have not been read yet; the reading half of a connection.

    The owner feeds it. `on_need` is called when a reader starts to wait, so that the owner can resume a
    paused transport.
    """

    def __init__(self, on_need: Callable[[], None] = lambda: None) -> None:
        self.buffer = bytearray()
        self.received_bytes = 0
        self.ended = False
        self.reset = False
        self._on_need = on_need
        self._more = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Add what came."""
        self.buffer += data
        self.received_bytes += len(data)
        self._more.set()

    def end(self, *, reset: bool = False) -> None:
        """Say that nothing more comes."""
        self.ended = True
        self.reset = self.reset or reset
        self._more.set()

    async def more(self) -> bool:
        """Wait for more bytes; False at the end."""
        if self.ended:
            return False
        self._more.clear()
        self._on_need()
        await self._more.wait()
        return True

    def take(self, count: int) -> bytes:
        """Take `count` bytes that are there."""
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    async def line(self) -> bytes:
        """Take up to and with the next CRLF. Raises ClosedError."""
        return await self.until(b"\r\n")

    async def until(self, mark: bytes) -> bytes:
        """Take up to and with `mark`. Raises ClosedError, or BrokenError past MAX_HEAD_BYTES."""
        searched = 0
        while (found := self.buffer.find(mark, max(0, searched - len(mark)))) < 0:
            searched = len(self.buffer)
            if searched > MAX_HEAD_BYTES:
                raise BrokenError("a head or chunk line without an end")
            if not await self.more():
                raise ClosedError
        return self.take(found + len(mark))

    async def exactly(self, count: int, into: bytearray) -> None:
        """Move `count` bytes to `into`; what came before a close is there as well. Raises ClosedError."""
        while count:
            if not self.buffer and not await self.more():
                raise ClosedError
            piece = self.take(count)
            into += piece
            count -= len(piece)


async def read_head(inbox: Inbox) -> Head:
    """Read the next head. Raises ClosedError when nothing or only a part comes, or BrokenError."""
    return parse_head(await inbox.until(b"\r\n\r\n"))


async def read_chunks(inbox: Inbox, body: bytearray, sizes: list[int] | None = None) -> None:
    """Read a chunked body into `body`, trailers dropped. Raises ClosedError, or BrokenError."""
    while True:
        line = await inbox.line()
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError as error:
            raise BrokenError(f"chunk size {line!r}") from error
        if not size:
            break
        await inbox.exactly(size, body)
        end = bytearray()
        await inbox.exactly(2, end)
        if end != b"\r\n":
            raise BrokenError(f"chunk ends with {bytes(end)!r}")
        if sizes is not None:
            sizes.append(size)
    while await inbox.line() != b"\r\n":
        pass


@dataclass
class Answer:
    """A response as a client got it.

    complete: whether all came that the framing promised. why: what broke it off otherwise.
    """

    head: Head
    body: bytes = b""
    complete: bool = True
    why: str = ""
    chunk_sizes: list[int] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.head.start.split(" ")[1])

    def get(self, name: str) -> str | None:
        """Return the first value of a header."""
        return self.head.get(name)

    def values(self, name: str) -> list[str]:
        """Return all values of a header."""
        return self.head.values(name)

    def json(self) -> Any:
        """Return the decoded body. Raises ValueError."""
        return json.loads(self.body)

    def __str__(self) -> str:
        ending = "" if self.complete else f", broken off ({self.why})"
        return f"{self.status} with {len(self.body)} bytes{ending}: {self.body[:120]!r}"


async def read_answer(inbox: Inbox, *, head_only: bool = False) -> Answer:
    """Read one response. Raises ClosedError only when not even a head came, or BrokenError."""
    head = await read_head(inbox)
    while head.start.split(" ")[1].startswith("1") and head.start.split(" ")[1] != "101":
        head = await read_head(inbox)
    answer = Answer(head)
    if head_only or answer.status in (101, 204, 304):
        return answer
    body = bytearray()
    try:
        if head.chunked:
            await read_chunks(inbox, body, answer.chunk_sizes)
        elif (length := head.get("content-length")) is not None:
            await inbox.exactly(int(length), body)
        else:
            while inbox.buffer or await inbox.more():
                body += inbox.take(len(inbox.buffer))
            if inbox.reset:
                raise ClosedError
    except ClosedError:
        answer.complete = False
        answer.why = "reset" if inbox.reset else "closed"
    answer.body = bytes(body)
    return answer


def request_bytes(
    path: str,
    body: bytes = b"",
    *,
    method: str = "POST",
    headers: Iterable[tuple[str, str]] = (),
    host: str = "router.example",
    chunks: Iterable[bytes] | None = None,
) -> bytes:
    """Return a request. chunks: the body in these pieces with chunked framing instead of a length."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    given = list(headers)
    lines += [f"{name}: {value}" for name, value in given]
    if body and not any(name.lower() == "content-type" for name, _ in given):
        lines.append("Content-Type: application/json")
    framed = body
    if chunks is not None:
        lines.append("Transfer-Encoding: chunked")
        framed = b"".join(chunk_bytes(piece) for piece in chunks) + b"0\r\n\r\n"
    elif body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + framed


def chunk_bytes(data: bytes) -> bytes:
    """Return one chunk; an empty one is the last."""
    return b"%x\r\n%b\r\n" % (len(data), data)
