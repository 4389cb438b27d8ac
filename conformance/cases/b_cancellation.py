"""Section B: clients that go away, and what the backend must learn of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from conformance.cases.a_accounting import open_files
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.exchange import Exchange, head_bytes
from conformance.model import Capability, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import hanging, well_behaved
from conformance.wire import request_bytes

WITHIN_SECONDS = 1.0
"""How soon a backend must know that nobody waits for its answer."""


async def _expect_abort(ctx: Context, clients: Sequence[ClientConnection]) -> float:
    """Wait until each request is at a backend, leave, and return the longest time until a backend knew."""
    left_at = time.monotonic()
    for at, client in enumerate(clients):
        if at % 2:
            client.reset()
        else:
            client.close()
    count = len(clients)
    exchanges = [exchange for backend in ctx.backends for exchange in backend.exchanges]
    await ctx.wait_until(
        lambda: all(exchange.ended_at is not None for exchange in exchanges),
        f"backend told that {count} clients left ({len(exchanges)} requests)",
        seconds=WITHIN_SECONDS,
    )
    check(all(exchange.aborted_at is not None for exchange in exchanges), "a request was not aborted")
    return max((exchange.aborted_at or left_at) - left_at for exchange in exchanges)


async def _hang_up_before_the_head(ctx: Context) -> Evidence:
    ctx.script_all(hanging)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(4)]
    await ctx.wait_until(lambda: ctx.running_count == 4, "4 requests at the backends")
    longest = await _expect_abort(ctx, clients)
    return f"4 of 4 aborted within {WITHIN_SECONDS:g} s (longest {longest * 1000:.0f} ms)"


case(
    "B1",
    "P0",
    "A client that does not stream goes away",
    "The connection to its backend is closed within a second.",
    variants=every_kind(streaming=False),
)(_hang_up_before_the_head)

case(
    "B2",
    "P0",
    "A streaming client goes away before the first token",
    "The connection to its backend is closed within a second, although no response has begun.",
    variants=every_kind(streaming=True),
)(_hang_up_before_the_head)


@case(
    "B4",
    "P0",
    "A client goes away in the middle of the response",
    "The backend learns it within a second.",
    variants=every_kind("while bytes flow", "in a pause"),
)
async def gone_in_the_body(ctx: Context) -> Evidence:
    """In a pause nothing is written to the client, so that only its close can tell."""

    begun: list[Exchange] = []

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: {}\n\n")
        begun.append(exchange)
        while ctx.variant.option == "while bytes flow":
            await asyncio.sleep(0.01)
            await exchange.chunk(b"data: {}\n\n")
        await exchange.forever()

    ctx.script_all(script)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(4)]
    await ctx.wait_until(lambda: len(begun) == 4, "4 responses begun")
    if ctx.streaming:
        for client in clients:
            await ctx.wait_until(client.inbox.buffer.strip, "the first event")
    else:
        await asyncio.sleep(0.1)  # a router may keep a whole answer back until it has all of it
    longest = await _expect_abort(ctx, clients)
    return f"4 of 4 aborted within {WITHIN_SECONDS:g} s (longest {longest * 1000:.0f} ms)"


@case(
    "B5",
    "P1",
    "A client goes away while its request waits in line",
    "Its place is given up at once: the next one is served and the abandoned one is never sent.",
    variants=stream_and_whole(),
    profile=Profile(backend_count=1, max_in_flight=1, queue_length=4, queue_timeout_seconds=30),
    needs={Capability.QUEUE},
    disturbs=True,
)
async def gone_from_the_line(ctx: Context) -> Evidence:
    """One runs, one waits and leaves, one waits behind it."""
    (backend,) = ctx.backends
    gate = asyncio.Event()

    async def first_held(exchange: Exchange) -> None:
        if len(backend.exchanges) == 1:
            await gate.wait()
        await exchange.respond(200, ctx.endpoint.answer())

    backend.script = first_held
    first = await ctx.start()
    await ctx.wait_until(lambda: backend.running, "a request at the backend")
    leaving = await ctx.start(ctx.request("leaving"))
    await asyncio.sleep(0.1)
    behind = await ctx.start(ctx.request("behind"))
    await asyncio.sleep(0.1)
    leaving.close()
    await asyncio.sleep(0.2)
    gate.set()
    statuses = [(await ctx.answer(client)).status for client in (first, behind)]
    check(statuses == [200, 200], f"statuses {statuses}")
    sent = [exchange for exchange in backend.exchanges if b"leaving" in exchange.body]
    check(not sent, "the abandoned request was sent to the backend")
    return "the abandoned request was never sent, the one behind it was served"


@case(
    "B6",
    "P1",
    "Two hundred clients go away",
    "Nothing is left of them: file descriptors return to where they were.",
    variants=stream_and_whole(),
    needs={Capability.PROCESS},
)
async def nothing_is_left(ctx: Context) -> Evidence:
    """A task or a connection that outlives its client holds a descriptor."""
    pid = ctx.router.pid or 0
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    for _ in range(12):
        await ctx.ask(ctx.request(ctx.unique()))
    before = open_files(pid)

    async def one_event(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: {}\n\n")
        await exchange.forever()

    ctx.script_all(one_event)
    for _ in range(4):
        clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(50)]
        await ctx.wait_until(lambda: ctx.running_count == 50, "50 requests at the backends")
        for client in clients:
            client.close()
        await ctx.wait_until(lambda: not ctx.running_count, "50 requests given up")
    spare = len(ctx.backends) + 2  # kept connections may differ by a few
    await ctx.wait_until(
        lambda: open_files(pid) <= before + spare, f"file descriptors back at {before} (+{spare})"
    )
    return f"{before} descriptors before, {open_files(pid)} after 200 clients left"


@case(
    "B8",
    "P1",
    "A client resets its connection in the middle of a large download",
    "The router lets go of the backend within a second and goes on serving.",
    variants=(Variant(option="length"), Variant(streaming=True, option="chunked")),
)
async def reset_in_a_download(ctx: Context) -> Evidence:
    """Buffers are full on both sides at that moment."""
    piece = b"z" * 65536
    count = 1000

    async def large(exchange: Exchange) -> None:
        if ctx.variant.option == "length":
            length = [("Content-Type", "application/json"), ("Content-Length", str(len(piece) * count))]
            await exchange.raw(head_bytes(200, length))
            for _ in range(count):
                await exchange.raw(piece)
        else:
            await exchange.start_stream()
            for _ in range(count):
                await exchange.chunk(piece)

    ctx.script_all(large)
    client = await ctx.start(receive_buffer_bytes=8192)
    client.stop_reading()
    await ctx.wait_until(lambda: ctx.work_count, "the request at a backend")
    await asyncio.sleep(0.3)  # until all buffers are full
    backend = ctx.served_by()
    if not backend.running:
        raise NotApplicable("the router had taken all 64 MB before its client could leave (see F13)")
    client.reset()
    seconds = await ctx.wait_until(
        lambda: not backend.running, "backend released after the reset", seconds=WITHIN_SECONDS
    )
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    answer = await ctx.ask(ctx.request(ctx.unique()))
    check(answer.status == 200, str(answer))
    return f"released within {WITHIN_SECONDS:g} s ({seconds * 1000:.0f} ms), next request 200"


@case(
    "B9",
    "P2",
    "A control endpoint that the router does not know",
    "It reaches a backend, or the client gets a clear 4xx or 501.",
    variants=tuple(
        Variant(option=path) for path in ("/abort_request", "/reset_prefix_cache", "/v1/unheard/of")
    ),
)
async def unknown_control_endpoint(ctx: Context) -> Evidence:
    """Silence and 5xx are what must not be."""
    answer = await ctx.ask(request_bytes(ctx.variant.option, b'{"rid": "1"}'))
    passed = ctx.work_count > 0
    check(passed or 400 <= answer.status < 500 or answer.status == 501, str(answer))
    check(not passed or answer.status == 200, f"a backend was asked and said 200, the client got {answer}")
    return "passed on" if passed else f"refused with {answer.status}"


@case(
    "B10",
    "P1",
    "Clients that go away are not a backend's fault",
    "A backend whose clients left keeps its work; the router counts them as clients that left.",
    variants=stream_and_whole("before the head", "in the body"),
    profile=Profile(request_failures=3, cooldown_seconds=30),
    disturbs=True,
)
async def not_the_backends_fault(ctx: Context) -> Evidence:
    """Four times as many clients leave as failures would eject the backend."""
    early = ctx.variant.option == "before the head"

    async def one_event(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: {}\n\n")
        await exchange.forever()

    ctx.script_all(hanging if early else one_event)
    before = await _left(ctx)
    prompt = ctx.unique()
    for _ in range(12):
        client = await ctx.start(ctx.request(prompt))
        await ctx.wait_until(lambda: ctx.running_count == 1, "the request at a backend")
        if not early and ctx.streaming:
            await ctx.wait_until(client.inbox.buffer.strip, "the first event")
        client.close()
        await ctx.wait_until(lambda: not ctx.running_count, "the request given up")
    home = max(ctx.backends, key=lambda backend: len(backend.exchanges))
    others = [backend for backend in ctx.backends if backend is not home and backend.exchanges]
    check(not others, f"work moved away: {[len(backend.exchanges) for backend in ctx.backends]}")
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    answer = await ctx.ask(ctx.request(prompt))
    check(answer.status == 200 and len(home.exchanges) == 13, f"the next request went elsewhere: {answer}")
    if before is None:
        return "12 clients left, the 13th request still went to the same backend"

    async def counted() -> bool:
        after = await _left(ctx)
        return after is not None and before is not None and after - before == 12

    await ctx.wait_for(counted, "exactly 12 requests counted as left by their clients")
    return "12 clients left and are counted so, the 13th request still went to the same backend"


async def _left(ctx: Context) -> int | None:
    """Return how many requests prefix_router counts as left by their clients; None for another router."""
    if Capability.ADMIN not in ctx.router.launcher.capabilities or ctx.router.admin_port is None:
        return None
    outcomes = (await ctx.router.admin("/status")).json()["totals"]["by_outcome"]
    return int(outcomes.get("client_disconnected", 0))
