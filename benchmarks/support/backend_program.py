"""A backend that misbehaves on command. A program of its own, so that it can be killed and frozen.

    python -m benchmarks.support.backend_program --name a --port 8101

What it does with one request is said by that request's header `X-Play` (see `Connection.play`), what it does
with all of them by its mode, which is one word a line on standard input (see `Mode`). It answers
`GET /-/stats` with what it has seen. Every answer carries the request's `X-Nonce`, so that a client can tell
its own answer from somebody else's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from enum import Enum
from typing import cast

import httptools
import uvloop

SLOW_ACCEPT_SECONDS = 0.5
_CHUNK_BYTES = 64 * 1024
_FILLERS = 8
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_GARBAGE = b"\x16\x03\x01\x00\xa5 this is not HTTP \xff\xfe\r\n\r\n"


class Mode(Enum):
    """How the whole backend behaves."""

    NORMAL = "normal"
    GARBAGE = "garbage"
    """Answers everything, probes included, with bytes that are not HTTP."""
    BREAK_OFF = "break-off"
    """Begins every answer but those to probes, and closes in the middle of it."""
    SLOW_ACCEPT = "slow-accept"
    """Accepts connections only every half second, then all that wait."""
    BLACK_HOLE = "black-hole"
    """Listens and never accepts; its backlog is full, so the kernel does not answer either."""


class Backend:
    """The listening socket, its mode and its statistics."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.mode = Mode.NORMAL
        self.requests = 0
        self.smuggled = 0
        self.connections: set[Connection] = set()
        self._something_new = asyncio.Event()
        self._fillers: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._socket.setblocking(False)

    async def accept(self) -> None:
        """Accept connections, in the manner of the mode. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if self.mode is Mode.BLACK_HOLE:
                self._something_new.clear()
                await self._something_new.wait()
                continue
            if self.mode is Mode.SLOW_ACCEPT:
                await asyncio.sleep(SLOW_ACCEPT_SECONDS)
            with suppress(BlockingIOError):
                while self._accepts():
                    accepted, _ = self._socket.accept()
                    accepted.setblocking(False)
                    await loop.connect_accepted_socket(lambda: Connection(self), accepted)
            if self.mode not in (Mode.SLOW_ACCEPT, Mode.BLACK_HOLE):
                await self._until_something_is_new()

    def _accepts(self) -> bool:
        return self.mode is not Mode.BLACK_HOLE

    async def _until_something_is_new(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._something_new.set)
        try:
            await self._something_new.wait()
        finally:
            loop.remove_reader(self._socket)
            self._something_new.clear()

    def set_mode(self, mode: Mode) -> None:
        """Behave like that from now on."""
        if mode is Mode.BLACK_HOLE:
            self._socket.listen(0)
            for connection in list(self.connections):
                connection.transport.abort()
            for _ in range(_FILLERS):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(self._socket.getsockname())
                self._fillers.append(filler)
        elif self.mode is Mode.BLACK_HOLE:
            while self._fillers:
                self._fillers.pop().close()
            self._socket.listen(4096)
        self.mode = mode
        self._something_new.set()

    def command(self) -> None:
        """Read one word from standard input; the end of input is the end of the program."""
        line = os.read(sys.stdin.fileno(), 4096)
        if not line:
            os._exit(0)
        self.set_mode(Mode(line.decode().split()[-1]))


class Connection(asyncio.Protocol):
    """One connection of the router."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._target = b""
        self._headers: dict[bytes, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.backend.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.backend.connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_message_complete(self) -> None:
        backend = self.backend
        probe = self._target in (b"/health", b"/v1/models", b"/-/stats")
        if not probe:
            backend.requests += 1
        if b"smuggled" in self._target or b"x-smuggled" in self._headers:
            backend.smuggled += 1
        if backend.mode is Mode.GARBAGE and self._target != b"/-/stats":
            self.transport.write(_GARBAGE)
        elif self._target == b"/health":
            self.respond(200, b"")
        elif self._target == b"/v1/models":
            self.respond(200, b'{"object":"list","data":[{"id":"m","object":"model"}]}')
        elif self._target == b"/-/stats":
            self.respond(
                200, json.dumps({"requests": backend.requests, "smuggled": backend.smuggled}).encode()
            )
        else:
            words = self._headers.get(b"x-play", b"answer").split(b":")
            self.play(words[0], [int(word) for word in words[1:]])

    def play(self, name: bytes, numbers: list[int]) -> None:
        """Answer a request as its `X-Play` says: `name[:number…]`."""
        nonce = self._headers.get(b"x-nonce", b"")
        if self.backend.mode is Mode.BREAK_OFF and name != b"stream":
            name = b"truncate"
        if name == b"answer":
            self.respond(200, b'{"nonce":"%b"}' % nonce)
        elif name == b"status":
            self.respond(numbers[0], b'{"error":{"message":"as asked","nonce":"%b"}}' % nonce)
        elif name == b"reset":
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()
        elif name == b"truncate":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
            self.transport.close()
        elif name == b"stream":
            count, interval_ms = numbers
            self._task = asyncio.ensure_future(self._stream(nonce, count, interval_ms / 1000))
        elif name == b"bulk":
            self._task = asyncio.ensure_future(self._bulk(numbers[0]))
        else:
            assert name == b"silent", name

    def respond(self, status: int, body: bytes) -> None:
        """Send a whole JSON answer."""
        head = b"HTTP/1.1 %d Status\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)

    async def _stream(self, nonce: bytes, count: int, interval_seconds: float) -> None:
        """Server-sent events, numbered. `stream:count:interval_ms`."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for number in range(count):
            if self.backend.mode is Mode.BREAK_OFF and number >= count // 2:
                self.transport.close()
                return
            event = b'data: {"choices":[{"index":0,"delta":{"content":"%b %d"}}]}\n\n' % (nonce, number)
            self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
            if interval_seconds:
                await asyncio.sleep(interval_seconds)
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def _bulk(self, size: int) -> None:
        """`bulk:bytes`, no faster than they are taken."""
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while size:
            piece = min(size, _CHUNK_BYTES)
            self.transport.write(bytes(piece))
            size -= piece
            await self._writable.wait()


async def serve(name: str, port: int) -> None:
    """Serve until terminated, or until standard input ends."""
    backend = Backend(name, port)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: os._exit(0))
    loop.add_reader(sys.stdin.fileno(), backend.command)
    print("listening", flush=True)
    await backend.accept()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.name, options.port))


if __name__ == "__main__":
    main()
