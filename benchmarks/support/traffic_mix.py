"""The mixture of the soak: every way a request can end, and what `/metrics` must say of each.

Each kind is played by one function that sends a request on the connection it is given, leaves the connection
usable or not, and fails when the client does not see what it should.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.support.raw_client import Ask, Head, Seen, exchange

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FIRST_BYTE_SECONDS = 2.0
_THINKING_SECONDS = 0.05
STREAM_EVENTS = 5
_REJECTED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    b"X-Prefix-Router-Affinity-Id: %b\r\nContent-Length: 2\r\n\r\n{}" % (b"a" * 200)
)


class UnexpectedError(Exception):
    """The client saw something else than this kind of request must show."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to end. share: of all requests, in percent. status_class: as counted by `requests_total`.

    play: sends it; the connection is used again only where `keeps` says so.
    """

    name: str
    share: int
    status_class: str
    play: Callable[[Streams, Ask], Awaitable[None]]
    keeps: bool = True


def _ask(ask: Ask, play: str, events: int = 0) -> Ask:
    return Ask(ask.nonce, ask.text, play, events)


async def _expect(streams: Streams, ask: Ask, kind: str) -> None:
    answer = await exchange(*streams, ask)
    if answer.kind != kind:
        raise UnexpectedError(f"{ask.play}: {answer.kind}")


async def success(streams: Streams, ask: Ask) -> None:
    """A whole answer."""
    await _expect(streams, ask, Seen.GOOD.value)


async def stream(streams: Streams, ask: Ask) -> None:
    """A stream to its end."""
    await _expect(streams, _ask(ask, f"stream:{STREAM_EVENTS}:0", STREAM_EVENTS), Seen.GOOD.value)


async def refused_by_backend(streams: Streams, ask: Ask) -> None:
    """The backend says 400."""
    await _expect(streams, _ask(ask, "status:400"), "400")


async def refused_by_router(streams: Streams, ask: Ask) -> None:
    """The router itself says 400: an affinity id that is too long."""
    reader, writer = streams
    writer.write(_REJECTED)
    head = Head.of(await reader.readuntil(b"\r\n\r\n"))
    await reader.readexactly(int(head.headers["content-length"]))
    if head.status != 400:
        raise UnexpectedError(f"affinity id: {head.status}")


async def error_of_backend(streams: Streams, ask: Ask) -> None:
    """The backend says 500."""
    await _expect(streams, _ask(ask, "status:500"), "500")


async def reset(streams: Streams, ask: Ask) -> None:
    """Every backend that is tried resets the connection."""
    await _expect(streams, _ask(ask, "reset"), "502")


async def timeout(streams: Streams, ask: Ask) -> None:
    """The backend never answers."""
    await _expect(streams, _ask(ask, "silent"), "504")


async def broken_off(streams: Streams, ask: Ask) -> None:
    """The backend closes in the middle of its answer."""
    await _expect(streams, _ask(ask, "truncate"), Seen.BROKEN.value)


async def abort_before(streams: Streams, ask: Ask) -> None:
    """The client leaves while the backend thinks.

    It waits for `100 Continue` first: from then on the router serves the request, and must count it.
    """
    reader, writer = streams
    wire = _ask(ask, "silent").wire()
    head, _, body = wire.partition(b"\r\n\r\n")
    writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.write(body)
    await asyncio.sleep(random.uniform(0, _THINKING_SECONDS))
    writer.transport.abort()


async def abort_during(streams: Streams, ask: Ask) -> None:
    """The client leaves in the middle of a stream that would go on for ten seconds."""
    reader, writer = streams
    writer.write(_ask(ask, "stream:1000:10", 1000).wire())
    await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"\n\n")
    writer.transport.abort()


KINDS = (
    Kind("success", 51, "2xx", success),
    Kind("stream", 20, "2xx", stream),
    Kind("4xx of the backend", 7, "4xx", refused_by_backend),
    Kind("4xx of the router", 3, "4xx", refused_by_router),
    Kind("5xx of the backend", 6, "5xx", error_of_backend),
    Kind("reset by backends (502)", 3, "5xx", reset),
    Kind("no first byte (504)", 1, "5xx", timeout),
    Kind("broken off by the backend", 2, "aborted", broken_off, keeps=False),
    Kind("client left before the response", 3, "aborted", abort_before, keeps=False),
    Kind("client left during the response", 4, "aborted", abort_during, keeps=False),
)
