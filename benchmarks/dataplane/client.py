"""A client that reads streams, and whole answers between them, and believes no byte.

    python -m benchmarks.dataplane.client PORT REQUESTS --connections N --seconds N [--texts] [--grace N]

wrk cannot read event streams. Closed loop: every connection sends its next request (from the file, in turn)
as soon as it has its answer. After `--seconds` no request is begun any more, and those that run may end. An
answer is an error when its status is not 200, its framing is broken, or its body is not the backend's to the
byte; with `--texts` (for routers that write events anew) the texts in it must be the backend's. The last line
printed is the account, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks.dataplane.numbers import percentile
from benchmarks.dataplane.wire import UNFINISHED, Answers, answers, read_requests
from benchmarks.support.machine import raise_file_limit

_CONNECT_AT_ONCE = 64
_TEXT = re.compile(rb'"content": ?"([^"]+)"')


class FramingError(Exception):
    """The body is not framed as its head says."""


def unchunked(data: bytes | bytearray) -> bytes:
    """Return the body in chunks that fill `data` exactly. Raises FramingError."""
    pieces, at = [], 0
    try:
        while True:
            line_end = data.index(b"\r\n", at)
            size = int(data[at:line_end], 16)
            end = line_end + 2 + size
            if data[end : end + 2] != b"\r\n":
                raise FramingError("a chunk has another length than it says")
            if size == 0:
                break
            pieces.append(data[line_end + 2 : end])
            at = end + 2
    except ValueError as error:
        raise FramingError(str(error)) from error
    if end + 2 != len(data):
        raise FramingError("bytes after the last chunk")
    return b"".join(pieces)


class Account:
    """What came of the requests. Times in seconds; those of streams and of whole answers are kept apart."""

    def __init__(self) -> None:
        self.whole: list[float] = []
        self.streams: list[float] = []
        self.first: list[float] = []
        self.errors: Counter[str] = Counter()

    def document(self, seconds: float, unfinished: int) -> dict[str, Any]:
        """Return it for the benchmark; `unfinished` requests count as errors."""
        errors = self.errors + Counter({UNFINISHED: unfinished})
        totals = self.whole or self.streams
        times = {"p50_us": (totals, 0.5), "p99_us": (totals, 0.99)}
        if self.first:
            times |= {"first_p50_us": (self.first, 0.5), "first_p99_us": (self.first, 0.99)}
        return {
            "requests": len(self.whole) + len(self.streams),
            "streams": len(self.streams),
            "seconds": seconds,
            "errors": errors.total(),
            "kinds_of_errors": {name: count for name, count in errors.items() if count},
            **{name: round(percentile(values, share) * 1e6) for name, (values, share) in times.items()},
        }


class Load:
    """All connections, and the requests that they take in turn."""

    def __init__(self, port: int, wires: list[bytes], *, texts: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._wires = wires
        self._turn = 0
        self._texts = texts
        self._expected = answers()
        self._until = 0.0
        self._at_rest = asyncio.Event()
        self._open: set[Connection] = set()
        self._closing = False
        self.account = Account()
        self.busy = 0

    async def run(self, connections: int, seconds: float, grace_seconds: float) -> dict[str, Any]:
        """Connect, send for so long, let the running requests end, and return the account."""
        for first in range(0, connections, _CONNECT_AT_ONCE):
            count = min(_CONNECT_AT_ONCE, connections - first)
            await asyncio.gather(*(self._connect() for _ in range(count)))
        began = self._loop.time()
        self._until = began + seconds
        for connection in list(self._open):
            self.send_next(connection)
        try:
            async with asyncio.timeout(seconds + grace_seconds):
                await self._at_rest.wait()
        except TimeoutError:
            pass
        found = self.account.document(self._loop.time() - began, self.busy)
        self._closing = True
        for connection in self._open:
            connection.close()
        return found

    async def _connect(self) -> Connection:
        _, connection = await self._loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        self._open.add(connection)
        return connection

    def send_next(self, connection: Connection) -> None:
        """Let a connection that is free send the next request, while there is time."""
        if self._loop.time() >= self._until:
            if self.busy == 0:
                self._at_rest.set()
            return
        wire = self._wires[self._turn]
        self._turn = (self._turn + 1) % len(self._wires)
        self.busy += 1
        connection.send(wire)

    def lost(self, connection: Connection) -> None:
        """Put a new connection in the place of one that has ended."""
        if not self._closing:
            self._open.discard(connection)
            self._loop.create_task(self._reconnect(), name="reconnect")

    async def _reconnect(self) -> None:
        try:
            self.send_next(await self._connect())
        except OSError:
            self.account.errors["connect"] += 1
            if self.busy == 0:
                self._at_rest.set()

    def judge(self, streamed: bool, body: bytes) -> str:
        """Return what is wrong with the body of an answer, empty when nothing is."""
        expected: Answers = self._expected
        if body == (expected.stream if streamed else expected.whole):
            return ""
        if not self._texts:
            return "wrong"
        if not streamed:
            return "" if _TEXT.search(body) else "wrong"
        return "" if [text.decode() for text in _TEXT.findall(body)] == expected.texts else "wrong"


class Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._streamed = False
        self._sent_at = 0.0
        self._buffer = bytearray()
        self._waiting = False
        self._transport: asyncio.Transport
        self._reset()

    def _reset(self) -> None:
        self._buffer.clear()
        self._head_end = 0
        self._head = b""
        self._body_end: int | None = None
        self._chunked = False
        self._first_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._waiting:
            until_close = self._head_end and not self._chunked and self._body_end is None
            self._finish("" if until_close else "broken", go_on=False)
        self._load.lost(self)

    def close(self) -> None:
        """Close it; what it still waits for does not count any more."""
        self._waiting = False
        self._transport.close()

    def send(self, wire: bytes) -> None:
        """Send a request."""
        self._waiting = True
        self._streamed = b'"stream":true' in wire[-64:]
        self._sent_at = time.perf_counter()  # the loop's own clock counts whole milliseconds
        self._transport.write(wire)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self._head_end and not self._read_head():
            return
        if not self._first_at and len(buffer) > self._head_end:
            self._first_at = time.perf_counter()
        if self._chunked:
            if buffer.endswith(b"0\r\n\r\n"):
                self._finish("")
        elif self._body_end is not None and len(buffer) >= self._body_end:
            self._finish("")

    def _read_head(self) -> bool:
        self._head_end = self._buffer.find(b"\r\n\r\n") + 4
        if self._head_end == 3:
            self._head_end = 0
            return False
        self._head = head = bytes(self._buffer[: self._head_end]).lower()
        self._chunked = b"\r\ntransfer-encoding: chunked" in head
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._body_end = self._head_end + int(head[at + 17 : head.index(b"\r\n", at + 17)])
        return True

    def _finish(self, wrong: str, *, go_on: bool = True) -> None:
        now = time.perf_counter()
        load, account = self._load, self._load.account
        wrong = wrong or self._judge()
        if wrong:
            account.errors[wrong] += 1
        elif self._streamed:
            account.streams.append(now - self._sent_at)
            account.first.append(self._first_at - self._sent_at)
        else:
            account.whole.append(now - self._sent_at)
        closes = b"\r\nconnection: close" in self._head
        self._waiting = False
        load.busy -= 1
        self._reset()
        if closes:
            self._transport.close()
        elif go_on:
            load.send_next(self)

    def _judge(self) -> str:
        if self._head[9:12] != b"200":
            return self._head[9:12].decode()
        body: bytes | bytearray = self._buffer[self._head_end :]
        if self._chunked:
            try:
                body = unchunked(body)
            except FramingError:
                return "framing"
        return self._load.judge(self._streamed, bytes(body))


async def _main(options: argparse.Namespace) -> dict[str, Any]:
    load = Load(options.port, read_requests(options.requests), texts=options.texts)
    return await load.run(options.connections, options.seconds, options.grace)


def main() -> None:
    """Parse the command line, send the load, print the account."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("port", type=int)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--grace", type=float, default=20.0)
    parser.add_argument("--texts", action="store_true")
    options = parser.parse_args()
    raise_file_limit(4 * options.connections + 100)
    print(json.dumps(uvloop.run(_main(options))))


if __name__ == "__main__":
    main()
