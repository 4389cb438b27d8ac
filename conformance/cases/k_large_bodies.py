"""Section K, second part: large bodies, and bodies made to hurt a parser."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import MODEL, Endpoint
from conformance.exchange import Exchange
from conformance.model import Capability, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case
from conformance.scripts import answering
from conformance.wire import Answer, request_bytes

LIMIT_BYTES = 100_000

MEBIBYTE = 1 << 20

LONGEST_PING_SECONDS = 0.4
"""For a small request beside a large one. Far above what a router needs that reads large bodies in steps: the
suite itself sends and receives these bodies on the same machine. A parser that is stopped for long shows."""


_PICTURE = "PICTURE"


def _image_body(endpoint: Endpoint, size: int, *, stream: bool = False) -> bytes:
    """A body with a picture of about `size` bytes as a data URL."""
    text = {"type": "text", "text": "what is this?"}
    if endpoint is Endpoint.MESSAGES:
        source = {"type": "base64", "media_type": "image/png", "data": _PICTURE}
        content = [{"type": "image", "source": source}, text]
    else:
        content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PICTURE}"}}, text]
    body = endpoint.request(stream=stream, messages=[{"role": "user", "content": content}])
    return body.replace(_PICTURE.encode(), b"iVBORw0KGgo" + b"A" * size)


@case(
    "K9",
    "P1",
    "A request with large images",
    "Bodies of up to 60 MB are accepted without any setting.",
    variants=(
        Variant(option="3 MB"),
        Variant(Endpoint.MESSAGES, True, "10 MB"),
        Variant(streaming=True, option="60 MB"),
    ),
)
async def large_bodies_pass(ctx: Context) -> Evidence:
    """Frameworks' defaults of one or two megabytes refuse a single photograph."""
    size = int(ctx.variant.option.split()[0]) * 1_000_000
    body = _image_body(ctx.endpoint, size, stream=ctx.streaming)
    ctx.script_all(answering())
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, body), seconds=20)
    check(answer.status == 200, str(answer))
    arrived = len(ctx.served_by().exchanges[0].body)
    check(arrived >= size - 1000, f"{len(body):,} bytes sent, {arrived:,} arrived")
    return f"{len(body):,} bytes accepted"


@case(
    "K9b",
    "P1",
    "A body above the limit",
    "413 as JSON in the API's form that names the limit or its setting; a body just below it passes.",
    variants=tuple(
        Variant(endpoint, option=option)
        for endpoint in (Endpoint.CHAT, Endpoint.MESSAGES)
        for option in ("length", "chunked", "below")
    ),
    profile=Profile(max_body_bytes=LIMIT_BYTES),
)
async def limit_on_bodies(ctx: Context) -> Evidence:
    """With a length the refusal is due before the body has come."""
    if ctx.variant.option == "below":
        answer = await ctx.ask(request_bytes(ctx.endpoint.path, ctx.endpoint.request("x" * 99_000)))
        check(answer.status == 200, str(answer))
        return "99 kB of 100 kB accepted"
    body = ctx.endpoint.request("x" * 400_000)
    if ctx.variant.option == "length":
        data = request_bytes(ctx.endpoint.path, body)
        data = data[: data.find(b"\r\n\r\n") + 4]
    else:
        data = request_bytes(
            ctx.endpoint.path,
            body,
            headers=[("Content-Type", "application/json")],
            chunks=[body[at : at + 50_000] for at in range(0, len(body), 50_000)],
        )
    answer = await ctx.ask(data)
    check(answer.status == 413, str(answer))
    check(not ctx.work_count, "a backend was asked all the same")
    check(
        "json" in (answer.get("content-type") or ""), f"Content-Type {answer.get('content-type')}: {answer}"
    )
    error = answer.json().get("error")
    check(isinstance(error, dict) and error.get("message"), f"not an error of the API: {answer}")
    named = re.search(rf"{LIMIT_BYTES}|max_\w+", str(error["message"]).replace(",", ""))
    check(named, f"names neither the limit nor its setting: {error['message']!r}")
    return f"413: {error['message']}"


@case(
    "K11",
    "P1",
    "Memory of a large body",
    "At most twice the body while it is handled, and freed once the answer has begun, however long that is.",
    variants=(Variant(), Variant(streaming=True)),
    needs={Capability.PROCESS, Capability.FRESH},
    fresh=True,
)
async def memory_of_a_body(ctx: Context) -> Evidence:
    """The peak is the kernel's own figure, so that no moment is missed."""
    await ctx.ask()
    size = 24 * MEBIBYTE
    body = _image_body(ctx.endpoint, size, stream=ctx.streaming)
    data = request_bytes(ctx.endpoint.path, body)
    before = ctx.memory_bytes()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow_answer(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: {}\n\n")
        begun.set()
        await go_on.wait()
        await exchange.end_stream()

    ctx.script_all(slow_answer)
    client = await ctx.start(data)
    await ctx.wait_until(begun.is_set, "the body at a backend", seconds=15)
    slack = 16 * MEBIBYTE

    async def freed() -> bool:
        return ctx.memory_bytes() - before < size // 2 + slack

    peak = _peak_bytes(ctx) - before
    await ctx.wait_for(freed, f"the memory of {size >> 20} MiB freed while the answer goes on", seconds=3)
    left = ctx.memory_bytes() - before
    go_on.set()
    answer = await ctx.answer(client)
    check(answer.status == 200, str(answer))
    told = f"{peak >> 20} MiB at most for {size >> 20} MiB of body, {left >> 20} MiB once the answer began"
    check(peak <= 2 * size + slack, told)
    return told


def _peak_bytes(ctx: Context) -> int:
    pid = ctx.router.pid
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise NotApplicable("the kernel does not tell the peak of the router's memory")


@case(
    "K13",
    "P1",
    "10 MB before `model`",
    "The request is answered, and all of it arrives.",
    variants=(
        Variant(),
        Variant(streaming=True),
        Variant(Endpoint.MESSAGES),
        Variant(Endpoint.RESPONSES, True),
        Variant(Endpoint.COMPLETIONS),
    ),
)
async def model_at_the_end(ctx: Context) -> Evidence:
    """A router that looks for the model in the first bytes only finds none here."""
    ctx.script_all(answering())
    document = json.loads(ctx.endpoint.request(ctx.unique(_PICTURE), stream=ctx.streaming))
    del document["model"]
    body = json.dumps({**document, "model": MODEL}).encode().replace(_PICTURE.encode(), b"y" * 10_000_000)
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, body), seconds=15)
    check(answer.status == 200, str(answer))
    arrived = json.loads(ctx.served_by().exchanges[0].body)
    check(arrived.get("model") == MODEL, f"model {arrived.get('model')!r} at the backend")
    return f"answered; {len(body):,} bytes"


_MODEL_FIELD = b'{"model": "%b", ' % MODEL.encode()


def _many_fields() -> bytes:
    fields = ",".join(f'"k{at}": {at}' for at in range(80_000))
    return _MODEL_FIELD + f'{fields}, "messages": []}}'.encode()


_BOMBS: dict[str, Callable[[], bytes]] = {
    "nested arrays": lambda: _MODEL_FIELD + b'"messages": %b%b}' % (b"[" * 250_000, b"]" * 250_000),
    "nested objects": lambda: b'{"messages": ' + b'{"a":' * 250_000 + b"1" + b"}" * 250_000 + b"}",
    "many fields": _many_fields,
    "many messages": lambda: (
        _MODEL_FIELD + b'"messages": [%b 1]}' % (b'{"role":"user","content":"x"},' * 50_000)
    ),
    "long number": lambda: _MODEL_FIELD + b'"top_k": %b}' % (b"9" * 800_000),
    "escapes": lambda: _MODEL_FIELD + b'"prompt": "%b"}' % (b"\\u0041" * 250_000),
    "open string": lambda: _MODEL_FIELD + b'"messages": "%b' % (b"\\\\" * 1_250_000),
    "not UTF-8": lambda: _MODEL_FIELD + b'"prompt": "%b"}' % (b"\xff\xfe\x80" * 400_000),
    "many ids": lambda: _MODEL_FIELD + b'"prompt": [%b1]}' % (b"7," * 1_250_000),
    "NUL bytes": lambda: bytes(800_000),
}


@case(
    "K15",
    "P1",
    "Bodies made to hurt a parser",
    "Each is passed on or refused with 4xx, and small requests beside it are answered without delay.",
    variants=tuple(Variant(option=name) for name in _BOMBS),
)
async def parser_bombs(ctx: Context) -> Evidence:
    """Several at once, with a client beside them that asks for little and notes how long it waits."""
    ctx.script_all(answering())  # the backends parse nothing, or they would be what is slow
    bomb = _BOMBS[ctx.variant.option]()
    path = Endpoint.COMPLETIONS.path if b'"prompt"' in bomb[:100] else Endpoint.CHAT.path
    data = request_bytes(path, bomb)
    beside = await ctx.connect()
    over = asyncio.Event()
    waits: list[float] = []

    async def pings() -> None:
        small = request_bytes(Endpoint.CHAT.path, Endpoint.CHAT.request("small"))
        while not over.is_set():
            waits.append(await _timed(ctx, beside, small))
            await asyncio.sleep(0.005)

    async def bombs() -> list[Answer]:
        try:
            return list(await asyncio.gather(*(ctx.ask(data, seconds=10) for _ in range(2))))
        finally:
            over.set()

    answers, _ = await asyncio.gather(bombs(), pings())
    bad = [answer for answer in answers if answer.status != 200 and not 400 <= answer.status < 500]
    check(not bad, f"{len(bomb):,} bytes: {next(iter(bad), None)}")
    slowest = max(waits)
    check(slowest < LONGEST_PING_SECONDS, f"a small request beside it took {slowest:.2f} s")
    return f"{len(bomb):,} bytes, twice: {answers[0].status}; {slowest:.2f} s at most for small requests"


async def _timed(ctx: Context, connection: ClientConnection, data: bytes) -> float:
    began = time.monotonic()
    await connection.send(data)
    answer = await ctx.answer(connection, seconds=10)
    check(answer.status == 200, f"a small request beside it: {answer}")
    return time.monotonic() - began
