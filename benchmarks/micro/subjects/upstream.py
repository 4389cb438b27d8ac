"""A response on a connection to a backend, in the router's own event loop but without a socket.

An operation of the first is a whole exchange: send, one read that brings the whole response, the body taken.
An operation of the second is one of the reads that bring an event of a stream each; what head and end of the
stream cost is shared out among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import uvloop

from benchmarks.micro.case import Case, Run
from benchmarks.micro.subjects.headers import RESPONSE
from benchmarks.micro.subjects.sse import chat_event
from prefix_router.upstream.connection import Connection
from prefix_router.upstream.response import Response

_EXCHANGES = 50
_EVENTS = 64
_REQUEST_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 10.0.0.1:8000\r\nContent-Length: 2\r\n\r\n"
_WHOLE = (
    b"HTTP/1.1 200 OK\r\ndate: Fri, 10 Oct 2025 08:53:20 GMT\r\nserver: uvicorn\r\n"
    b"content-length: 1024\r\ncontent-type: application/json\r\n\r\n" + b"x" * 1024
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % field for field in RESPONSE) + b"\r\n"
_EVENT = chat_event(" token")
_STREAM = (_STREAM_HEAD, *[b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)] * _EVENTS, b"0\r\n\r\n")


def cases() -> list[Case]:
    return [
        Case("response of 1 KB in one read", _EXCHANGES, lambda: in_loop(whole_responses)),
        Case(f"stream, {_EVENTS} reads", _EVENTS, lambda: in_loop(stream)),
    ]


class Wire(asyncio.Transport):
    """A transport to nowhere: what is written is lost."""

    def write(self, data: object) -> None:
        """Lose the bytes."""

    def writelines(self, list_of_data: object) -> None:
        """Lose the bytes."""


def in_loop(work: Callable[[asyncio.AbstractEventLoop, Connection], Awaitable[None]]) -> Run:
    """Return a run of some work over one connection that stays open."""
    loop = uvloop.new_event_loop()
    connection = Connection(loop, lambda _: None, lambda _: None)
    connection.connection_made(Wire())
    return lambda: loop.run_until_complete(work(loop, connection))


async def whole_responses(loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
    for _ in range(_EXCHANGES):
        await exchange(loop, connection, iter([_WHOLE]))


async def stream(loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
    await exchange(loop, connection, iter(_STREAM))


async def exchange(loop: asyncio.AbstractEventLoop, connection: Connection, reads: Iterator[bytes]) -> None:
    """Send a request, get these reads, one at each turn of the loop, and take the body as the relay does."""

    def read_next() -> None:
        data = next(reads, None)
        if data is not None:
            connection.data_received(data)
            loop.call_soon(read_next)

    loop.call_soon(read_next)
    response = await connection.exchange(
        b"POST", _REQUEST_HEAD, b"{}", first_byte_seconds=600, idle_seconds=300
    )
    await take_all(response)


async def take_all(response: Response) -> None:
    while not await response.pour(lambda _chunk, _last: True):
        pass
