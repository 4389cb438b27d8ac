"""A backend that costs next to nothing: ready-made answers, written in one piece.

    python -m benchmarks.dataplane.backend PORT [PORT ...]

One process listens on all ports, so that a router has a choice. Chat requests get a JSON answer, or a stream
whose first event comes at once and whose further events come with one tick for all streams.
`GET /-/every/N` sets how many ticks of 5 ms lie between two events of a stream; streams are spread over
those ticks. Everything else that a router may ask of a replica is answered well enough. It prints
`listening` when it does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

from benchmarks.dataplane.wire import MODEL, answers

TICK_SECONDS = 0.005
_FLAG_WITHIN = 2048
"""`"stream": true` is looked for in so many bytes at the beginning and at the end of a body."""


def _response(body: bytes, content_type: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_MODELS = json.dumps(
    {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 131072}],
    }
)
_OTHERS = {
    b"/health": _response(b""),
    b"/v1/models": _response(_MODELS.encode()),
    b"/version": _response(b'{"version":"0.11.0"}'),
    b"/get_model_info": _response(json.dumps({"model_path": MODEL, "is_generation": True}).encode()),
    b"/metrics": _response(b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n", "text/plain"),
}
_EMPTY = _response(b"{}")
_ANSWERS = answers()
_WHOLE = _response(_ANSWERS.whole)
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_FIRST = _HEAD + _chunk(_ANSWERS.events[0])
_REST = (
    *(_chunk(event) for event in _ANSWERS.events[1:-2]),
    _chunk(_ANSWERS.events[-2]) + _chunk(_ANSWERS.events[-1]) + b"0\r\n\r\n",
)
"""What is written at each tick after the first event; the last one ends the stream."""


class Ticker:
    """Writes the next event of all streams whose turn it is, every 5 ms."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = 0
        self._due = loop.time()
        self._turns: list[list[Connection]] = [[]]
        self._next = loop.call_at(self._due, self._tick)

    def set_every(self, every: int) -> None:
        """Let a stream's events be `every` ticks apart; running streams are spread anew."""
        running = [stream for turn in self._turns for stream in turn]
        self._turns = [running[first::every] for first in range(every)]

    def add(self, stream: Connection) -> None:
        """Take in a stream; its next event comes a full interval from now."""
        self._turns[self._now % len(self._turns)].append(stream)

    def stop(self) -> None:
        """Write no more events."""
        self._next.cancel()

    def _tick(self) -> None:
        self._now += 1
        turn = self._now % len(self._turns)
        self._turns[turn] = [stream for stream in self._turns[turn] if stream.write_event()]
        self._due = max(self._due + TICK_SECONDS, self._loop.time() - TICK_SECONDS)
        self._next = self._loop.call_at(self._due, self._tick)


class Connection(asyncio.Protocol):
    """One connection: a request is taken apart no further than to see where it ends and what it wants."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._buffer = bytearray()
        self._needed = 0
        self._next_event = 0
        self._lost = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._lost = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= max(self._needed, 4):
            end = self._end_of_request()
            if end == 0:
                return
            request = self._buffer
            self._buffer = bytearray() if len(request) == end else request[end:]
            self._needed = 0
            self._answer(request)

    def write_event(self) -> bool:
        """Write the next event; return whether there is another one to come."""
        if self._lost:
            return False
        self._transport.write(_REST[self._next_event])
        self._next_event += 1
        return self._next_event < len(_REST)

    def _end_of_request(self) -> int:
        """Return where the first request ends, 0 while it is not whole."""
        buffer = self._buffer
        head_end = buffer.find(b"\r\n\r\n") + 4
        if head_end == 3:
            return 0
        head = bytes(buffer[:head_end]).lower()
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._needed = head_end + int(head[at + 17 : head.index(b"\r\n", at + 17)])
            return self._needed if len(buffer) >= self._needed else 0
        if b"\r\ntransfer-encoding: chunked" in head:
            return buffer.find(b"\r\n0\r\n\r\n", head_end - 2) + 7 if buffer.endswith(b"0\r\n\r\n") else 0
        return head_end

    def _answer(self, request: bytearray) -> None:
        if request.startswith(b"POST /v1/chat/completions"):
            if _wants_stream(request):
                self._next_event = 0
                self._transport.write(_FIRST)
                self._ticker.add(self)
            else:
                self._transport.write(_WHOLE)
            return
        path = bytes(request.split(b" ", 2)[1]).partition(b"?")[0]
        if path.startswith(b"/-/every/"):
            self._ticker.set_every(int(path.rpartition(b"/")[2]))
        self._transport.write(_OTHERS.get(path, _EMPTY))


def _wants_stream(request: bytearray) -> bool:
    begin = request.find(b"\r\n\r\n")
    for part in (request[begin : begin + _FLAG_WITHIN], request[-_FLAG_WITHIN:]):
        at = part.find(b'"stream":')
        if at >= 0:
            return part[at + 9 :].lstrip().startswith(b"true")
    return False


async def serve(ports: list[int]) -> None:
    """Listen on all ports until cancelled."""
    loop = asyncio.get_running_loop()
    ticker = Ticker(loop)
    servers = [
        await loop.create_server(lambda: Connection(ticker), "127.0.0.1", port, backlog=4096)
        for port in ports
    ]
    print("listening", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
