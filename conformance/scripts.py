"""Ready-made scripts for backends: what a good vLLM does, and the usual ways to be a bad one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from conformance.backend import Backend, Script
from conformance.endpoints import endpoint_of
from conformance.exchange import Exchange, head_bytes
from conformance.wire import chunk_bytes


def well_behaved(backend: Backend) -> Script:
    """Answer each endpoint as vLLM would, from the backend's prefix cache; other paths with `{}`."""

    async def script(exchange: Exchange) -> None:
        backend.cache.look_up(_text(exchange))
        endpoint = endpoint_of(exchange.path)
        if endpoint is None:
            await exchange.respond(200, b"{}")
        elif exchange.wants_stream:
            await exchange.start_stream()
            for event in endpoint.events():
                await exchange.chunk(event)
            await exchange.end_stream()
        else:
            await exchange.respond(200, endpoint.answer())

    return script


def answering(
    status: int = 200,
    body: bytes = b"{}",
    headers: Sequence[tuple[str, str]] = (),
    *,
    content_type: str = "application/json",
    delay_seconds: float = 0.0,
) -> Script:
    """Answer everything with the same whole response, after a pause."""

    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(delay_seconds)
        await exchange.respond(status, body, headers, content_type=content_type)

    return script


def streaming(
    chunks: Sequence[bytes],
    headers: Sequence[tuple[str, str]] = (),
    *,
    content_type: str = "text/event-stream; charset=utf-8",
    gap_seconds: float = 0.0,
    finish: bool = True,
) -> Script:
    """Stream `chunks` with pauses between them; without `finish`, close before the last chunk."""

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream(headers, content_type=content_type)
        for at, chunk in enumerate(chunks):
            if at:
                await asyncio.sleep(gap_seconds)
            await exchange.chunk(chunk)
        if finish:
            await exchange.end_stream()
        else:
            exchange.close()

    return script


def streaming_then_hanging(
    chunks: Sequence[bytes], *, content_type: str = "text/event-stream; charset=utf-8"
) -> Script:
    """Stream `chunks` and then never end."""

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream(content_type=content_type)
        for chunk in chunks:
            await exchange.chunk(chunk)
        await exchange.forever()

    return script


def sending(data: bytes, *, pieces: Sequence[int] = (), then: str = "keep") -> Script:
    """Send raw bytes, cut at the offsets `pieces`, then `keep`, `close`, `reset` or `hang`.

    A pause after each piece lets the router read it by itself.
    """

    async def script(exchange: Exchange) -> None:
        start = 0
        for end in (*pieces, len(data)):
            if start:
                await asyncio.sleep(0.002)
            await exchange.raw(data[start:end])
            start = end
        if then == "close":
            exchange.close()
        elif then == "reset":
            await asyncio.sleep(0.05)  # or the RST would take the bytes with it
            exchange.reset()
        elif then == "hang":
            await exchange.forever()

    return script


async def hanging(exchange: Exchange) -> None:
    """Read the request and never answer."""
    await exchange.forever()


async def closing(exchange: Exchange) -> None:
    """Close instead of answering."""
    exchange.close()


async def resetting(exchange: Exchange) -> None:
    """Answer with RST."""
    exchange.reset()


async def echoing(exchange: Exchange) -> None:
    """Answer with the request's head and body as they came, as JSON strings (latin-1)."""
    document = {"head": exchange.head.raw.decode("latin-1"), "body": exchange.body.decode("latin-1")}
    await exchange.respond(200, json.dumps(document).encode())


def stream_bytes(chunks: Sequence[bytes], content_type: str = "text/event-stream") -> bytes:
    """Return a whole chunked response as bytes."""
    head = head_bytes(200, [("Content-Type", content_type), ("Transfer-Encoding", "chunked")])
    return head + b"".join(chunk_bytes(chunk) for chunk in chunks) + b"0\r\n\r\n"


def whole_bytes(body: bytes, content_type: str = "application/json", length: int | None = None) -> bytes:
    """Return a whole response as bytes; `length` lies about its Content-Length."""
    stated = len(body) if length is None else length
    return head_bytes(200, [("Content-Type", content_type), ("Content-Length", str(stated))]) + body


def _text(exchange: Exchange) -> str:
    return exchange.body.decode("utf-8", "replace")
