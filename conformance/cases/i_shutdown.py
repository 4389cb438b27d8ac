"""Section I: a router that is told to stop."""

from __future__ import annotations

import asyncio
import signal
import time

from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Capability, CaseFailed, Evidence, NotApplicable, Variant, check
from conformance.own_router import exit_status
from conformance.profile import Profile
from conformance.registry import case
from conformance.scripts import streaming_then_hanging
from conformance.service import carried_kinds, kind_request
from conformance.wire import BrokenError, ClosedError, request_bytes

STOPPING = {Capability.DRAIN, Capability.FRESH}


class _Held:
    """A script that begins its response and finishes it when it is told to."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def script(self, exchange: Exchange) -> None:
        """Send a half, wait, send the other half."""
        await exchange.start_stream()
        await exchange.chunk(b"data: 1\n\n")
        await self.finish.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()


@case(
    "I2",
    "P0",
    "SIGTERM while responses run",
    "They finish, on every kind of endpoint; then the process ends by itself with status 0.",
    variants=(Variant(option="begun"), Variant(option="waiting for the head")),
    profile=Profile(shutdown_grace_seconds=10),
    needs=STOPPING,
    fresh=True,
)
async def responses_finish(ctx: Context) -> Evidence:
    """Half a second into the drain the backends finish."""
    held = _Held()
    go_on = asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await go_on.wait()
        await exchange.respond(200, b'{"late": true}')

    kinds = await carried_kinds(ctx)
    ctx.script_all(held.script if ctx.variant.option == "begun" else late)
    clients = [await ctx.start(kind_request(ctx, kind)) for kind in kinds]
    await ctx.wait_until(lambda: ctx.running_count == len(kinds), "all requests at the backends")
    ctx.router.signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    check(ctx.running_count == len(kinds), f"{len(kinds) - ctx.running_count} of {len(kinds)} cut at once")
    held.finish.set()
    go_on.set()
    answers = [await ctx.answer(client) for client in clients]
    bad = [answer for answer in answers if answer.status != 200 or not answer.complete]
    check(not bad, f"{len(bad)} of {len(answers)} did not finish: {next(iter(bad), '')}")
    for client in clients:
        client.close()
    status = await exit_status(ctx.router, seconds=3)
    check(status == 0, f"exit status {status}")
    return f"{len(answers)} responses finished after SIGTERM, exit status 0"


@case(
    "I2b",
    "P0",
    "SIGTERM, and then another one",
    "The second signal ends the process at once, whatever still runs.",
    variants=(Variant(streaming=True),),
    profile=Profile(shutdown_grace_seconds=30),
    needs=STOPPING,
    fresh=True,
)
async def second_signal(ctx: Context) -> Evidence:
    """With a grace of 30 s the first one would wait for the response."""
    ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
    client = await ctx.start()
    await client.head()
    ctx.router.signal(signal.SIGTERM)
    await asyncio.sleep(0.4)
    process = ctx.router.process
    check(process is not None and process.returncode is None, "it did not wait for the response at all")
    check(ctx.running_count == 1, "the response was cut by the first signal")
    ctx.router.signal(signal.SIGTERM)
    began = time.monotonic()
    await exit_status(ctx.router, seconds=2)
    return f"over within 2 s of the second signal ({(time.monotonic() - began) * 1000:.0f} ms)"


@case(
    "I2c",
    "P0",
    "A rollout with a load balancer in front",
    "Readiness says 503 at once, new connections are served for the time that was set, then no more.",
    profile=Profile(shutdown_delay_seconds=1, shutdown_grace_seconds=5),
    needs=STOPPING | {Capability.ADMIN},
    fresh=True,
)
async def window(ctx: Context) -> Evidence:
    """Needs the readiness of prefix_router's admin interface. A stream runs over all of it."""
    held = _Held()
    ctx.script_all(held.script)
    stream = await ctx.start()
    await ctx.wait_until(lambda: stream.inbox.buffer, "the beginning of the stream")
    for backend in ctx.backends:
        backend.script = backend.default
    began = time.monotonic()
    ctx.router.signal(signal.SIGTERM)

    async def not_ready() -> bool:
        return (await ctx.router.admin("/readyz")).status == 503

    noticed = await ctx.wait_for(not_ready, "readiness 503", seconds=0.5)
    health = await ctx.ask(request_bytes("/health", method="GET"))
    check(health.status == 503, f"/health of the data port: {health}")
    served = 0
    while time.monotonic() - began < 0.8:
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(answer.status == 200, f"a new connection within the window: {answer}")
        check((answer.get("connection") or "").lower() == "close", "a response without Connection: close")
        served += 1
        await asyncio.sleep(0.05)

    async def closed() -> bool:
        try:
            connection = await ctx.connect()
        except CaseFailed:
            return True
        connection.close()
        return False

    await ctx.wait_for(closed, "no new connections after the window", seconds=1.5)
    held.finish.set()
    answer = await ctx.answer(stream)
    check(answer.complete, f"the stream: {answer}")
    status = await exit_status(ctx.router, seconds=3)
    check(status == 0, f"exit status {status}")
    return (
        f"503 within 0.5 s ({noticed * 1000:.0f} ms), new connections served for about 1 s "
        f"({served} requests), the stream finished"
    )


@case(
    "I3",
    "P1",
    "A stream that never ends, and SIGTERM",
    "The drain is bounded: after the grace the process ends; meanwhile it tells how much is left.",
    variants=(Variant(streaming=True),),
    profile=Profile(shutdown_grace_seconds=1),
    needs=STOPPING,
    fresh=True,
)
async def bounded(ctx: Context) -> Evidence:
    """The client must see that its response is cut. What is left is looked at where it can be."""
    ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
    client = await ctx.start()
    await ctx.wait_until(lambda: ctx.running_count == 1, "the request at a backend")
    began = time.monotonic()
    ctx.router.signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    left = await ctx.router.in_flight()
    if left is not None:
        check(sum(left.values()) == 1, f"it tells {left} requests left, there is 1")
    answer = await ctx.answer(client)
    seconds = time.monotonic() - began
    check(not answer.complete or b"error" in answer.body, f"the cut response looks whole: {answer}")
    check(0.8 < seconds < 3, f"cut after {seconds:.1f} s with a grace of 1 s")
    await exit_status(ctx.router, seconds=2)
    await ctx.wait_until(lambda: not ctx.running_count, "the backend told")
    told = "" if left is None else ", 1 told as left meanwhile"
    return f"cut soon after the grace of 1 s, the process ended{told}"


@case(
    "I4",
    "P1",
    "Idle connections, and SIGTERM",
    "They are closed in order (FIN, no RST), towards clients and towards backends.",
    profile=Profile(shutdown_grace_seconds=2),
    needs=STOPPING,
    fresh=True,
)
async def idle_connections(ctx: Context) -> Evidence:
    """Six clients with a connection each, three of them used before; the router keeps some to backends."""
    clients = [await ctx.connect() for _ in range(6)]
    for client in clients[:3]:
        await client.send(ctx.request(ctx.unique()))
        check((await ctx.answer(client)).status == 200, "a plain request")
        if client.inbox.ended:
            raise NotApplicable("the router keeps no connections of clients")
    upstream = [connection for backend in ctx.backends for connection in backend.connections]
    ctx.router.signal(signal.SIGTERM)
    await exit_status(ctx.router, seconds=4)
    await ctx.wait_until(lambda: all(client.inbox.ended for client in clients), "connections closed")
    reset = sum(client.inbox.reset for client in clients)
    check(not reset, f"{reset} of {len(clients)} idle connections were reset")
    check(not any(client.inbox.buffer for client in clients), "something was sent on an idle connection")
    await ctx.wait_until(lambda: all(each.inbox.ended for each in upstream), "backend connections closed")
    reset = sum(connection.inbox.reset for connection in upstream)
    check(not reset, f"{reset} of {len(upstream)} connections to backends were reset")
    return f"{len(clients)} of clients and {len(upstream)} to backends, all closed with FIN"


@case(
    "I4b",
    "P1",
    "A kept connection is used during the drain",
    "Its request is answered and the connection closed in order, or it was closed before; never a reset.",
    profile=Profile(shutdown_grace_seconds=5),
    needs=STOPPING,
    fresh=True,
)
async def kept_connection_in_drain(ctx: Context) -> Evidence:
    """A stream elsewhere keeps the drain going."""
    held = _Held()
    ctx.script_all(held.script)
    stream = await ctx.start()
    await ctx.wait_until(lambda: stream.inbox.buffer, "the beginning of the stream")
    for backend in ctx.backends:
        backend.script = backend.default
    client = await ctx.connect()
    await client.send(ctx.request(ctx.unique()))
    check((await ctx.answer(client)).status == 200, "a plain request")
    ctx.router.signal(signal.SIGTERM)
    await asyncio.sleep(0.3)
    how = "closed before it could be used again"
    if not client.inbox.ended:
        await client.send(ctx.request(ctx.unique()))
        try:
            async with asyncio.timeout(3):
                answer = await client.answer()
        except (ClosedError, BrokenError, TimeoutError) as error:
            raise CaseFailed(f"a request on an open connection: {error!r}") from error
        check(answer.status in (200, 503) and answer.complete, str(answer))
        check((answer.get("connection") or "").lower() == "close", "a response without Connection: close")
        how = f"{answer.status} with Connection: close"
        await ctx.wait_until(lambda: client.inbox.ended, "the connection closed")
    check(not client.inbox.reset, "the connection was reset")
    held.finish.set()
    check((await ctx.answer(stream)).complete, "the stream was cut")
    await exit_status(ctx.router, seconds=4)
    return how
