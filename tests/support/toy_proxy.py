"""A small proxy that does one thing wrong, to show that the conformance suite notices.

Without a flaw it does what the cases that are run against it ask for, and nothing more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Self

from conformance.client import ClientConnection
from conformance.wire import BrokenError, ClosedError, Head, chunk_bytes, parse_head

HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade"})


class Flaw(Enum):
    """What it does wrong."""

    KEEPS_HOST = "the client's Host goes to the backend"
    KEEPS_HOP_BY_HOP = "hop-by-hop headers pass"
    DROPS_AUTHORIZATION = "Authorization is lost"
    DEAF = "a client that leaves is not noticed"
    LEAKS = "the count of an abandoned request stays"
    DECREMENTS_TWICE = "the count of a failed attempt is taken back twice"
    RELEASES_EARLY = "the count goes down with the response head"
    BUFFERS = "a response is passed on when it is whole"
    LAUNDERS = "a response that broke off gets a clean end"
    RETRIES_LATE = "a request is sent again after the response has begun"
    STRIPS_CODING = "Content-Encoding is removed from compressed bytes"
    RELABELS = "every answer to a streaming request is an event stream"
    STOPS_AT_DONE = "the stream ends at the first [DONE]"
    NEVER_RESENDS = "a backend that closes is the client's problem"


class ToyProxy:
    """Listens on a free port, sends each request to the backend with the fewest in flight."""

    def __init__(self, ports: Sequence[int], flaw: Flaw | None) -> None:
        self._ports = list(ports)
        self._flaw = flaw
        self._counts: Counter[int] = Counter()
        self._idle: defaultdict[int, list[ClientConnection]] = defaultdict(list)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connections in self._idle.values():
            for connection in connections:
                connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ClosedError):
                while True:
                    head = parse_head(await reader.readuntil(b"\r\n\r\n"))
                    body = await reader.readexactly(int(head.get("content-length") or 0))
                    await self._watched(head, body, reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _watched(
        self, head: Head, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward, and give up when the client leaves meanwhile."""
        work = asyncio.ensure_future(self._forward(head, body, writer))
        watch = asyncio.ensure_future(reader.read(1))
        try:
            waited = {work} if self._flaw is Flaw.DEAF else {work, watch}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClosedError
            work.result()
        finally:
            for future in (work, watch):
                future.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _forward(self, head: Head, body: bytes, writer: asyncio.StreamWriter) -> None:
        tried: set[int] = set()
        for _ in range(3):
            port = self._choose(tried)
            tried.add(port)
            self._counts[port] += 1
            try:
                if await self._attempt(port, head, body, writer):
                    return
                if self._flaw is Flaw.DECREMENTS_TWICE:
                    self._counts[port] -= 1
            finally:
                leaked = self._flaw is Flaw.LEAKS and _cancelling()
                if not leaked and self._flaw is not Flaw.RELEASES_EARLY:
                    self._counts[port] -= 1
            if self._flaw is Flaw.NEVER_RESENDS:
                break
        error = b'{"error": {"message": "no backend"}}'
        length = str(len(error)).encode()
        writer.write(b"HTTP/1.1 502 Bad\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %b\r\n\r\n%b" % (length, error))
        await writer.drain()

    def _choose(self, tried: set[int]) -> int:
        open_ports = [port for port in self._ports if port not in tried]
        least = min(self._counts[port] for port in open_ports)
        return random.choice([port for port in open_ports if self._counts[port] == least])

    async def _attempt(self, port: int, head: Head, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Try one backend; False when another may be tried."""
        begun = False
        upstream = None
        try:
            upstream, answer = await self._asked(port, self._request(head, body, port))
            if self._flaw is Flaw.RELEASES_EARLY:
                self._counts[port] -= 1
            begun = self._flaw is not Flaw.BUFFERS
            pieces = _pieces(answer, upstream)
            if self._flaw is Flaw.BUFFERS:
                pieces = _listed([piece async for piece in pieces])
            writer.write(self._response(answer, streaming=b'"stream": true' in body))
            async for piece in pieces:
                writer.write(chunk_bytes(piece) if answer.chunked else piece)
                await writer.drain()
                if self._flaw is Flaw.STOPS_AT_DONE and b"[DONE]" in piece:
                    break
            else:
                self._idle[port].append(upstream)
                upstream = None
        except (OSError, ClosedError, BrokenError):
            if not begun or self._flaw is Flaw.RETRIES_LATE:
                return False
            if self._flaw is not Flaw.LAUNDERS or not answer.chunked:
                raise ClosedError from None
        finally:
            if upstream is not None:
                upstream.close()
        if answer.chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _asked(self, port: int, request: bytes) -> tuple[ClientConnection, Head]:
        """Send a request on a kept connection, and once more on a fresh one when that has gone stale."""
        while self._idle[port]:
            kept = self._idle[port].pop()
            try:
                await kept.send(request)
                return kept, await kept.head()
            except BaseException as error:
                kept.close()
                if not isinstance(error, ClosedError) or self._flaw is Flaw.NEVER_RESENDS:
                    raise
        fresh = await ClientConnection.open("127.0.0.1", port)
        try:
            await fresh.send(request)
            return fresh, await fresh.head()
        except BaseException:
            fresh.close()
            raise

    def _request(self, head: Head, body: bytes, port: int) -> bytes:
        host = head.get("host") if self._flaw is Flaw.KEEPS_HOST else f"127.0.0.1:{port}"
        dropped = {"host", "content-length"}
        if self._flaw is Flaw.DROPS_AUTHORIZATION:
            dropped.add("authorization")
        lines = [
            head.start,
            f"Host: {host}",
            *self._end_to_end(head, dropped),
            f"Content-Length: {len(body)}",
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _response(self, head: Head, *, streaming: bool) -> bytes:
        dropped = {"content-encoding"} if self._flaw is Flaw.STRIPS_CODING else set()
        lines = [head.start]
        if streaming and self._flaw is Flaw.RELABELS:
            dropped.add("content-type")
            lines.append("Content-Type: text/event-stream")
        return "\r\n".join([*lines, *self._end_to_end(head, dropped), "", ""]).encode("latin-1")

    def _end_to_end(self, head: Head, dropped: set[str]) -> list[str]:
        named = {token.strip().lower() for value in head.values("connection") for token in value.split(",")}
        if self._flaw is not Flaw.KEEPS_HOP_BY_HOP:
            dropped = dropped | HOP_BY_HOP | named
        return [f"{name}: {value}" for name, value in head.headers if name.lower() not in dropped]


async def _pieces(head: Head, upstream: ClientConnection) -> AsyncIterator[bytes]:
    """The body, piece by piece, by the response's own framing."""
    if head.chunked:
        while size := int(await upstream.inbox.line(), 16):
            piece = bytearray()
            await upstream.inbox.exactly(size + 2, piece)
            yield bytes(piece[:-2])
        await upstream.inbox.line()
        return
    left = int(head.get("content-length") or 0)
    while left:
        data = await upstream.some()
        if not data:
            raise ClosedError
        left -= len(data)
        yield data


async def _listed(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
