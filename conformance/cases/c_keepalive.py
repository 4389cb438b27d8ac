"""Section C: connections to backends that are kept and used again."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time

from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.wire import Answer, request_bytes

FAST_SECONDS = 3.0
"""What "at once" means for a broken connection; a timeout takes far longer."""


def _reused(ctx: Context) -> int:
    return sum(exchange.reused for backend in ctx.backends for exchange in backend.exchanges)


@case(
    "C2",
    "P0",
    "Backends keep connections for one second",
    "With the router's own limit set below that, no request ever meets a closing connection.",
    profile=Profile(upstream_keepalive_seconds=0.5, max_attempts=1),
    variants=(Variant(), Variant(streaming=True)),
)
async def keepalive_below_the_backends(ctx: Context) -> Evidence:
    """Forty clients, each with a pause of its own around the second; nothing may be sent twice."""
    for backend in ctx.backends:
        backend.idle_close_seconds = 1.0

    async def one(at: int) -> list[Answer]:
        answers = []
        for _ in range(2):
            answers.append(await ctx.ask(ctx.request(ctx.unique())))
            await asyncio.sleep(0.9 + at * 0.005)
        return answers

    answers = [answer for pair in await asyncio.gather(*(one(at) for at in range(40))) for answer in pair]
    bad = [answer for answer in answers if answer.status != 200 or not answer.complete]
    check(not bad, f"{len(bad)} of {len(answers)} failed: {next(iter(bad), '')}")
    check(ctx.work_count == len(answers), f"{ctx.work_count} sent for {len(answers)} requests")
    return f"{len(answers)} requests around the second, all 200, none sent twice"


@case(
    "C3",
    "P0",
    "A kept connection breaks as it is used again",
    "The request is sent again only when no byte of a response has come; after a partial head it is not.",
    variants=stream_and_whole("no byte", "part of a head"),
    disturbs=True,
)
async def resend_only_without_a_byte(ctx: Context) -> Evidence:
    """The first request makes the connection, the second meets its end."""
    prompt = ctx.unique()

    async def script(exchange: Exchange) -> None:
        if b"second" not in exchange.body or not exchange.reused:
            await exchange.respond(200, ctx.endpoint.answer())
            return
        if ctx.variant.option == "part of a head":
            await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
        exchange.close()

    ctx.script_all(script)
    await ctx.ask(ctx.request(prompt))
    await ctx.ask(ctx.request(prompt))
    if not _reused(ctx):
        raise NotApplicable("the router does not use connections to backends again")
    before = ctx.work_count
    answer = await ctx.ask(ctx.request(f"{prompt} second"))
    sent = ctx.work_count - before
    if ctx.variant.option == "no byte":
        check(answer.status == 200, str(answer))
        return f"200 after {sent} tries"
    check(sent == 1, f"sent {sent} times although a response had begun")
    check(answer.status == 502 or not answer.complete, str(answer))
    return f"sent once, the client got {answer.status}"


@case(
    "C4",
    "P1",
    "A backend closes a kept connection as a request arrives",
    "The client sees 200, every time.",
    variants=every_kind("1", "3"),
    disturbs=True,
)
async def reused_connection_closes(ctx: Context) -> Evidence:
    """Every backend closes exactly on the n-th reuse of each connection."""
    for backend in ctx.backends:
        backend.close_on_reuse = int(ctx.variant.option)
    answers = [await ctx.ask() for _ in range(12)]
    bad = [answer for answer in answers if answer.status != 200 or not answer.complete]
    check(not bad, f"{len(bad)} of 12 failed: {next(iter(bad), '')}")
    if not _reused(ctx):
        return "12 in a row, all 200; no connection was used twice"
    return f"12 in a row, {ctx.work_count} sent, all 200"


@case(
    "C6",
    "P1",
    "A backend resets a connection",
    "The client learns it at once, or is served by another connection; it does not wait for a timeout.",
    variants=stream_and_whole("idle", "before the head", "in the body"),
    disturbs=True,
)
async def fail_fast_on_reset(ctx: Context) -> Evidence:
    """On an idle connection, while the router waits for the head, and in the middle of the body."""
    prompt = ctx.unique()
    option = ctx.variant.option
    if option == "idle":
        await ctx.ask(ctx.request(prompt))
        await ctx.ask(ctx.request(prompt))
        for backend in ctx.backends:
            for connection in list(backend.connections):
                connection.reset()
    else:

        async def script(exchange: Exchange) -> None:
            if option == "in the body":
                await exchange.start_stream()
                await exchange.chunk(b"data: {}\n\n")
            await asyncio.sleep(0.05)
            exchange.reset()

        ctx.script_all(script)
    began = time.monotonic()
    answer = await ctx.ask(ctx.request(prompt), seconds=FAST_SECONDS)
    seconds = time.monotonic() - began
    if option == "idle":
        check(answer.status == 200 and answer.complete, str(answer))
    elif option == "before the head":
        check(500 <= answer.status < 600, str(answer))
    else:
        check(
            not answer.complete or b"error" in answer.body, f"a cut response ends like a whole one: {answer}"
        )
    return f"over within {FAST_SECONDS:g} s ({seconds * 1000:.0f} ms)"


async def _thousand_streams(ctx: Context, count: int) -> asyncio.Event:
    """Open `count` streams and wait until each has its first event; they end when the event is set."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * count:
        raise NotApplicable(f"this machine allows {hard} file descriptors to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    finish = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: {}\n\n")
        await finish.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    ctx.script_all(script)
    return finish


@case(
    "C7",
    "P1",
    "A thousand streams at once",
    "All of them run at the same time and end well.",
    variants=(Variant(streaming=True),),
    timeout_seconds=60,
)
async def thousand_streams(ctx: Context) -> Evidence:
    """A connection limit anywhere would leave some without a first event."""
    count = 1000
    finish = await _thousand_streams(ctx, count)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(count)]
    await ctx.wait_until(lambda: ctx.running_count == count, f"{count} streams at the backends", seconds=20)
    finish.set()
    answers = await asyncio.gather(*(ctx.answer(client, seconds=20) for client in clients))
    bad = [answer for answer in answers if not answer.complete or not answer.body.endswith(b"[DONE]\n\n")]
    check(not bad, f"{len(bad)} of {count} did not end well: {next(iter(bad), '')}")
    return f"{count} at the same time, all ended well"


@case(
    "C8",
    "P1",
    "The router is asked for its health under a thousand streams",
    "It answers within 100 ms (median of 21).",
    variants=(Variant(streaming=True),),
    timeout_seconds=60,
)
async def health_under_load(ctx: Context) -> Evidence:
    """A quarter of the streams get an event every second meanwhile."""
    count = 1000
    finish = await _thousand_streams(ctx, count)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(count)]
    await ctx.wait_until(lambda: ctx.running_count == count, f"{count} streams at the backends", seconds=20)
    feeding = asyncio.get_running_loop().create_task(_feed(ctx, count // 4), name="feed")
    times = []
    try:
        for _ in range(21):
            began = time.monotonic()
            answer = await ctx.ask(request_bytes("/health", method="GET"))
            times.append(time.monotonic() - began)
            check(answer.status == 200, f"/health: {answer}")
            await asyncio.sleep(0.05)
    finally:
        feeding.cancel()
    finish.set()
    for client in clients:
        client.close()
    median = statistics.median(times)
    check(median < 0.1, f"median {median * 1000:.0f} ms")
    return f"median {median * 1000:.1f} ms, longest {max(times) * 1000:.0f} ms, all 200"


async def _feed(ctx: Context, count: int) -> None:
    while True:
        running = [exchange for backend in ctx.backends for exchange in backend.running][:count]
        for exchange in running:
            await exchange.chunk(b"data: {}\n\n")
            await asyncio.sleep(1 / count)


@case(
    "C10",
    "P2",
    "Requests come as idle connections are being closed",
    "Whatever the router's own limit is, the client sees 200.",
    variants=stream_and_whole(),
    disturbs=True,
)
async def stale_connections(ctx: Context) -> Evidence:
    """The backends close after 0.3 s without work; requests are aimed at that moment."""
    for backend in ctx.backends:
        backend.idle_close_seconds = 0.3

    async def one(at: int) -> list[Answer]:
        answers = []
        for _ in range(4):
            answers.append(await ctx.ask(ctx.request(ctx.unique())))
            await asyncio.sleep(0.28 + at * 0.001)
        return answers

    answers = [answer for some in await asyncio.gather(*(one(at) for at in range(40))) for answer in some]
    bad = [answer for answer in answers if answer.status != 200 or not answer.complete]
    check(not bad, f"{len(bad)} of {len(answers)} failed: {next(iter(bad), '')}")
    return f"{len(answers)} requests around the moment, all 200 ({ctx.work_count - len(answers)} sent again)"
