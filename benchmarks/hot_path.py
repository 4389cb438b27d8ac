"""What one request costs the router in its own process, without sockets: Python instructions by place.

    python benchmarks/hot_path.py [--requests 300] [--top 25] [--times] [--tracing 1.0]

A real front door and real upstream connections are joined to transports that are functions, so that nothing
but the router runs: a 260-byte chat request comes in one piece, a 640-byte response in another. Counted are
the bytecode instructions that the interpreter carries out, which is the same number on every machine and at
every load; what C code does between them (parsers, hashing, the event loop) is not in it. `--times` measures
microseconds of processor time per request instead, the best of several batches, without counting: of the
event loop, and of the whole process. `--tracing` traces requests and records that part of them; its spans are
made and encoded in their thread, which is not counted, and sent nowhere.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from prefix_router.app import Router
from prefix_router.data_port import DataPort
from prefix_router.observe.otlp import encoded
from prefix_router.observe.spans import Span
from prefix_router.observe.tracing import SpanSender
from prefix_router.upstream.connection import Connection
from prefix_router.upstream.pool import Pool
from tests.support.router import settings_for

PACKAGE = Path(__file__).resolve().parents[1]
_ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"' + b"hello " * 40 + b'"},"finish_reason":"stop"}],"usage":'
    b'{"prompt_tokens":64,"completion_tokens":40,"total_tokens":104,'
    b'"prompt_tokens_details":{"cached_tokens":48}}}'
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 15:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
    b"content-type: application/json\r\n\r\n%b" % (len(_ANSWER), _ANSWER)
)


def request(number: int) -> bytes:
    """Return a chat request as an OpenAI client sends it."""
    text = f"question {number} of somebody " + "x" * 120
    body = (
        '{"model":"m","messages":[{"role":"system","content":"You are helpful."},'
        f'{{"role":"user","content":"{text}"}}],"max_tokens":40}}'
    ).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer sk-1\r\nAccept: application/json\r\nUser-Agent: OpenAI/Python 1.0\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


class Ends(asyncio.Transport):
    """A transport whose other end is a function."""

    def __init__(self, take: Any) -> None:
        super().__init__()
        self._take = take

    def write(self, data: Any) -> None:
        """Hand bytes over."""
        self._take(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return addresses only."""
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Do nothing."""

    abort = resume_reading = pause_reading = close


class NoWay:
    """Where spans are encoded and thrown away."""

    def send(self, spans: Sequence[Span]) -> tuple[int, str]:
        """Take all."""
        encoded(spans, {})
        return 0, ""

    def hurry(self) -> None:
        """Nothing to hurry."""

    close = hurry


class Bench:
    """One client connection to a router with four backends, which answer at once."""

    def __init__(self, tracing: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._answered = self._loop.create_future()
        urls = [f"http://10.0.0.{number}:8000" for number in range(1, 5)]
        traced = {} if tracing is None else {"endpoint": "http://127.0.0.1:4318", "sample_ratio": tracing}
        settings = settings_for(urls, tracing=traced)
        self._router = Router(settings)
        self._router._spans = SpanSender(lambda _: NoWay())
        self._router._trace_by(settings)
        data = self._router._data
        assert isinstance(data, DataPort)
        self._client = data._front_door()
        self._client.connection_made(Ends(self._got))
        self._requests = [request(number) for number in range(256)]

    def _got(self, _: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(None)

    async def run(self, count: int) -> None:
        """Send requests, one after the other."""
        for number in range(count):
            self._answered = self._loop.create_future()
            self._client.data_received(self._requests[number % len(self._requests)])
            await self._answered


async def _connect(pool: Pool, _: float) -> Connection:
    loop = asyncio.get_running_loop()
    connection = Connection(loop, pool._put_idle, pool._forget)
    connection.connection_made(Ends(lambda _: loop.call_soon(connection.data_received, RESPONSE)))
    return connection


def _place(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    for root in (str(PACKAGE) + "/", "site-packages/", "python3.11/"):
        path = path.rpartition(root)[2] if root in path else path
    return f"{path}:{frame.f_code.co_qualname}"


async def count(requests: int, tracing: float | None) -> Counter[str]:
    """Return the instructions of so many requests by place."""
    bench = Bench(tracing)
    await bench.run(500)
    counted: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            counted[_place(frame)] += 1
        return trace

    sys.settrace(trace)
    await bench.run(requests)
    sys.settrace(None)
    return counted


async def times(tracing: float | None) -> tuple[float, float]:
    """Return microseconds of processor time per request, of the event loop's thread and of the process."""
    bench = Bench(tracing)
    await bench.run(1000)
    measured = []
    for _ in range(20):
        began = time.thread_time(), time.process_time()
        await bench.run(1000)
        measured.append((time.thread_time() - began[0], time.process_time() - began[1]))
    loop, process = zip(*measured, strict=True)
    # Spans are made in batches, some in each run: of the process the mean says more than the best.
    return min(loop) * 1000, (min(process) if tracing is None else sum(process) / len(process)) * 1000


def main() -> None:
    """Count, or measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--tracing", type=float, metavar="RATIO")
    options = parser.parse_args()
    Pool._connect = _connect  # type: ignore[method-assign, assignment]
    if options.times:
        loop, process = uvloop.run(times(options.tracing))
        version = sys.version.split()[0]
        print(f"{loop:.1f} µs per request in the event loop, {process:.1f} in the process, Python {version}")
        return
    counted = uvloop.run(count(options.requests, options.tracing))
    rooms: Counter[str] = Counter()
    for place, number in counted.items():
        parts = place.split("/")
        rooms["/".join(parts[:2]) if parts[0] == "prefix_router" else parts[0]] += number
    print(f"{sum(counted.values()) / options.requests:.0f} instructions per request\n\nby room")
    for name, number in rooms.most_common(12):
        print(f"{number / options.requests:8.0f}  {name}")
    print("\nby function")
    for name, number in counted.most_common(options.top):
        print(f"{number / options.requests:8.0f}  {name}")


if __name__ == "__main__":
    main()
