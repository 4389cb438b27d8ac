"""Section A: requests in flight, the number that a load-aware router decides on."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

from conformance.backend import Backend
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange
from conformance.model import Capability, CaseFailed, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile, Strategy
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import answering, hanging, resetting, streaming, streaming_then_hanging, well_behaved
from conformance.sharing import Gate, Look, ended, expect_counts_intact, look
from conformance.wire import BrokenError, ClosedError, request_bytes

KINDS = ("200", "400", "reset", "stream", "abandon")
"""How the requests of A5 end."""

BY_LOAD = Profile(strategy=Strategy.LEAST_LOADED)
UNBREAKABLE = Profile(strategy=Strategy.LEAST_LOADED, request_failures=1000)
"""Failures are the point of some cases; they must not take the backend out."""


async def _begin(ctx: Context) -> tuple[Backend, Look]:
    first = await look(ctx)
    victim = next(backend for backend in ctx.backends if backend.name == first.favourite)
    for backend in ctx.backends:
        backend.exchanges.clear()
    return victim, first


def _leave(connection: ClientConnection, how: str) -> None:
    if how == "reset":
        connection.reset()
    else:
        connection.close()


@case(
    "A1",
    "P0",
    "Clients leave while they wait for a response head",
    "After 1,000 abandoned requests every count is 0 and the backend gets its usual share.",
    variants=every_kind(),
    profile=BY_LOAD,
    disturbs=True,
)
async def abandoned_before_the_head(ctx: Context) -> Evidence:
    """First all backends hold requests, then one of them, so that a leak there shows in the shares."""
    victim, first = await _begin(ctx)
    abandoned = 0
    for holding in (ctx.backends,) * 2 + ([victim],) * 10:
        gate = Gate()
        for backend in ctx.backends:
            backend.script = gate.script if backend in holding else well_behaved(backend)
        size = 50 if len(holding) > 1 else 6
        clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(size)]

        def taken(clients: list[ClientConnection] = clients) -> bool:
            return all(client.inbox.buffer or client.inbox.ended for client in clients) or (
                sum(not client.inbox.buffer for client in clients) <= ctx.running_count
            )

        await ctx.wait_until(taken, f"{size} requests at the backends")
        abandoned += ctx.running_count
        for client in clients:
            client.close()
        await ended(ctx, gate)
    check(abandoned >= 100, f"only {abandoned} requests could be abandoned")
    return f"{abandoned} abandoned; {await expect_counts_intact(ctx, victim, first)}"


@case(
    "A2",
    "P0",
    "A request fails at one backend and is retried at another",
    "One request is counted once: no count falls below what runs, or below 0.",
    variants=stream_and_whole("before", "while others run"),
    profile=UNBREAKABLE,
    disturbs=True,
)
async def retried_requests(ctx: Context) -> Evidence:
    """Every other request is reset at the victim, on whatever connection; streams there must stay counted."""
    victim, first = await _begin(ctx)
    held: list[ClientConnection] = []
    if ctx.variant.option == "while others run":
        ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
        held = [await ctx.start(ctx.request(ctx.unique())) for _ in range(9)]
        await ctx.wait_until(lambda: ctx.running_count == 9, "9 requests at the backends")
    running = {backend.url: len(backend.running) for backend in ctx.backends}
    if held:  # a least-loaded policy may never come to the one that has most
        victim = min(ctx.backends, key=lambda backend: len(backend.running))
    failed = 0

    async def some(exchange: Exchange) -> None:
        nonlocal failed
        if b"to fail" in exchange.body:
            failed += 1
            await resetting(exchange)
        else:
            await well_behaved(victim)(exchange)

    for backend in ctx.backends:
        backend.script = some if backend is victim else well_behaved(backend)
    for at in range(60):
        await ctx.ask(ctx.request(ctx.unique("to fail" if at % 2 else "to succeed")))
    if failed < 3:
        raise NotApplicable(f"the policy sent {failed} of the requests that were to fail there")
    counts = await ctx.router.in_flight()
    if counts is not None:
        wanted = sorted(running.values()) if held else [0] * len(ctx.backends)
        await ctx.wait_for(lambda: _counts_are(ctx, wanted), f"counts {wanted} after {failed} failures")
    for client in held:
        client.close()
    gate = Gate()
    await ended(ctx, gate)
    return f"{failed} failures at one backend; {await expect_counts_intact(ctx, victim, first)}"


async def _counts_are(ctx: Context, wanted: list[int]) -> bool:
    counts = await ctx.router.in_flight()
    return counts is not None and sorted(counts.values()) == wanted


@case(
    "A4",
    "P1",
    "The list of backends is read again while requests run",
    "A backend that stays keeps its count.",
    profile=BY_LOAD,
    needs={Capability.MEMBERSHIP, Capability.IN_FLIGHT},
    disturbs=True,
    fresh=True,
)
async def counts_survive_a_refresh(ctx: Context) -> Evidence:
    """Remove another backend and add it again, with streams on all of them."""
    ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(9)]
    await ctx.wait_until(lambda: ctx.running_count == 9, "9 requests at the backends")
    staying = ctx.backends[:2]
    wanted = sorted(len(backend.running) for backend in staying)
    await ctx.set_backends(staying)
    await ctx.wait_for(lambda: _counts_are(ctx, wanted), f"counts {wanted} with one backend less")
    await ctx.set_backends(ctx.backends)

    async def kept() -> bool:
        counts = await ctx.in_flight()
        return len(counts) == 3 and all(sorted(counts.values()).count(count) for count in wanted)

    await ctx.wait_for(kept, f"counts {wanted} among three backends")
    for client in clients:
        client.close()
    await ctx.expect_nothing_in_flight()
    return f"counts {wanted} stayed through a removal and an addition, then 0"


@case(
    "A5",
    "P0",
    "Many requests that end in every way",
    "The router's memory stays flat over requests that succeed, fail, are reset and are abandoned.",
    profile=UNBREAKABLE,
    needs={Capability.PROCESS, Capability.FRESH},
    disturbs=True,
    fresh=True,
    timeout_seconds=90,
)
async def memory_stays_flat(ctx: Context) -> Evidence:
    """The first rounds warm the router's pools and allocator; the later ones must add next to nothing."""
    clients = [await ctx.connect() for _ in range(8)]
    draw = random.Random(5)

    async def mixed(exchange: Exchange) -> None:
        kind = next((kind for kind in KINDS if b"kind-%b " % kind.encode() in exchange.body), "200")
        if kind == "400":
            await exchange.respond(400, exchange.body)
        elif kind == "reset" and exchange.use % 2:
            exchange.reset()
        elif kind == "stream":
            await streaming(Endpoint.CHAT.events())(exchange)
        else:
            await exchange.respond(200, Endpoint.CHAT.answer())

    ctx.script_all(mixed)

    async def one_after_the_other(at: int, count: int) -> None:
        for _ in range(count):
            kind = draw.choice(KINDS)
            body = Endpoint.CHAT.request(ctx.unique(f"kind-{kind} " + "x" * 200), stream=kind == "stream")
            data = request_bytes(Endpoint.CHAT.path, body)
            if clients[at].inbox.ended or kind == "abandon":
                clients[at].close()
                clients[at] = await ctx.connect()
            await clients[at].send(data)
            if kind != "abandon":
                try:
                    await clients[at].answer()
                except (ClosedError, BrokenError):
                    continue

    async def round_of(count: int) -> int:
        each = count // len(clients)
        await asyncio.gather(*(one_after_the_other(at, each) for at in range(len(clients))))
        for backend in ctx.backends:
            backend.exchanges.clear()
        return ctx.memory_bytes()

    warm = [await round_of(1000) for _ in range(2)][-1]
    later = [await round_of(1000) for _ in range(3)]
    grown = min(later[1:]) - warm
    check(grown < 4 << 20, f"{grown / 2**20:.1f} MiB more after 3,000 requests")
    await ctx.expect_nothing_in_flight()
    return f"{grown / 2**20:+.1f} MiB over 3,000 mixed requests after 2,000 to warm up"


@case(
    "A6",
    "P0",
    "A response has begun and is not over",
    "Its backend counts as busy until the last body byte.",
    variants=every_kind(),
    profile=BY_LOAD,
    disturbs=True,
)
async def busy_until_the_last_byte(ctx: Context) -> Evidence:
    """One backend holds a response in its middle; a least-loaded policy must then avoid it."""
    victim, _ = await _begin(ctx)
    go_on = asyncio.Event()
    sent = False

    async def slow_body(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start_stream(content_type="text/event-stream" if ctx.streaming else "application/json")
        await exchange.chunk(b"data: {}\n\n" if ctx.streaming else b'{"half": 1')
        sent = True
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n" if ctx.streaming else b"}")
        await exchange.end_stream()

    for backend in ctx.backends:
        backend.script = slow_body if backend is victim else well_behaved(backend)
    client: ClientConnection | None = None
    for _ in range(60):
        client = await ctx.start(ctx.request(ctx.unique()))
        await ctx.wait_until(_begun(client, victim), "a response or a request at the favourite")
        if victim.running:
            break
        client.close()
    if client is None or not victim.running:
        raise CaseFailed("the favourite backend got no request")
    await ctx.wait_until(lambda: sent, "half a response sent")
    await asyncio.sleep(0.1)  # the router has it by now, whether it passes it on or not
    before = len(victim.exchanges)
    for _ in range(30):
        answer = await ctx.ask(ctx.request(ctx.unique()), seconds=3)
        check(answer.status == 200, str(answer))
        if len(victim.exchanges) > before:
            raise CaseFailed("a request went to the backend whose response was not over, others were idle")
    counts = await ctx.router.in_flight()
    if counts is not None:
        check(sum(counts.values()) == 1, f"counts {sorted(counts.values())} with one open response")
    go_on.set()
    await ctx.expect_nothing_in_flight()
    return "30 requests in the meantime, all to idle backends"


def _begun(client: ClientConnection, victim: Backend) -> Callable[[], bool]:
    return lambda: bool(victim.running or client.inbox.buffer or client.inbox.ended)


@case(
    "A8",
    "P0",
    "Clients with a timeout of their own",
    "A client that gives up before or as the first byte comes leaves no count behind.",
    variants=stream_and_whole("close", "reset"),
    profile=BY_LOAD,
    disturbs=True,
)
async def client_timeouts(ctx: Context) -> Evidence:
    """Timeouts spread around the moment of the answer, so that some race with it."""
    victim, first = await _begin(ctx)
    delay = 0.1
    ctx.script_all(answering(200, Endpoint.CHAT.answer(), delay_seconds=delay))

    async def one(timeout: float) -> None:
        client = await ctx.start(ctx.request(ctx.unique()))
        await asyncio.sleep(timeout)
        _leave(client, ctx.variant.option)

    count = 120
    for _ in range(2):
        await asyncio.gather(*(one(2 * delay * at / count) for at in range(count)))
    await ended(ctx, Gate(), seconds=2)
    return f"{2 * count} timeouts; {await expect_counts_intact(ctx, victim, first)}"


@case(
    "A9",
    "P1",
    "A backend is removed while a response from it runs",
    "The response finishes, and its count goes down once, wherever the backend is now.",
    variants=stream_and_whole(),
    profile=BY_LOAD,
    needs={Capability.MEMBERSHIP, Capability.IN_FLIGHT},
    disturbs=True,
    fresh=True,
)
async def removed_while_running(ctx: Context) -> Evidence:
    """Remove the backend, finish the response, add the backend again."""
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: 1\n\n")
        await gate.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    ctx.script_all(held)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(6)]
    await ctx.wait_until(lambda: ctx.running_count == 6, "6 requests at the backends")
    leaving = ctx.backends[2]
    await ctx.set_backends(ctx.backends[:2])
    gate.set()
    answers = [await ctx.answer(client) for client in clients]
    check(all(answer.complete for answer in answers), "a response was cut by the removal of its backend")
    await ctx.expect_nothing_in_flight()
    await ctx.set_backends(ctx.backends)
    await ctx.expect_nothing_in_flight()
    return f"{len(leaving.exchanges)} responses of the removed backend finished, all counts 0"


@case(
    "A10",
    "P1",
    "A backend leaves and comes back under the same address while requests run",
    "A request that ends later does not take the newcomer's count below 0.",
    variants=(Variant(option="restart"), Variant(option="re-added")),
    profile=Profile(strategy=Strategy.LEAST_LOADED, health_interval_seconds=1, cooldown_seconds=1),
    disturbs=True,
    fresh=True,
    timeout_seconds=60,
)
async def flapping(ctx: Context) -> Evidence:
    """Requests run across the change and end after it."""
    victim, first = await _begin(ctx)
    gate = Gate()
    ctx.script_all(gate.script)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(6)]
    await ctx.wait_until(lambda: ctx.running_count == 6, "6 requests at the backends")
    if ctx.variant.option == "restart":
        await victim.refuse()
        await ctx.wait_until(lambda: not victim.running, "the old requests cut")
        await victim.start()
    else:
        await ctx.set_backends([backend for backend in ctx.backends if backend is not victim])
        await ctx.set_backends(ctx.backends)
    gate.open()
    for client in clients:
        client.close()
    await ended(ctx, gate)
    counts = await ctx.router.in_flight()
    check(min((counts or {"": 0}).values()) >= 0, f"a count below 0: {counts}")

    async def back() -> bool:
        await ctx.ask(request_bytes(Endpoint.CHAT.path, Endpoint.CHAT.request(ctx.unique())))
        return len(victim.exchanges) > old

    old = len(victim.exchanges)
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    await ctx.wait_for(back, "the backend gets work again", seconds=15)
    await ctx.wait_until(lambda: all(b.listening for b in ctx.backends), "all backends listen")
    await asyncio.sleep(0 if ctx.variant.option == "re-added" else 3)  # half-open phases
    return await expect_counts_intact(ctx, victim, first)


@case(
    "A12",
    "P0",
    "Clients leave at any moment",
    "Whatever the router was waiting for, the count comes back.",
    variants=every_kind(),
    profile=BY_LOAD,
    disturbs=True,
)
async def gone_at_any_moment(ctx: Context) -> Evidence:
    """Half of the clients leave in the middle of their own request, the others anywhere in the response."""
    victim, first = await _begin(ctx)

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.02)
        await exchange.start_stream()
        for _ in range(4):
            await exchange.chunk(b"data: {}\n\n")
            await asyncio.sleep(0.01)
        await exchange.end_stream()

    ctx.script_all(slow)
    draw = random.Random(12)
    data = ctx.request(ctx.unique("y" * 3000))

    async def one() -> None:
        client = await ctx.connect()
        cut = len(data) if draw.random() < 0.6 else draw.randrange(1, len(data))
        await client.send(data[:cut])
        await asyncio.sleep(draw.random() * 0.09)
        _leave(client, draw.choice(["close", "reset"]))

    for _ in range(2):
        await asyncio.gather(*(one() for _ in range(60)))
    await ended(ctx, Gate(), seconds=2)
    return f"120 clients left; {await expect_counts_intact(ctx, victim, first)}"


@case(
    "A13",
    "P1",
    "A limit on requests in flight",
    "A permit is held for the whole response and comes back exactly once, however the response ends.",
    variants=stream_and_whole("finished", "abandoned waiting for the head", "abandoned in the body"),
    profile=Profile(backend_count=1, max_in_flight=2, queue_length=8, queue_timeout_seconds=5),
    needs={Capability.QUEUE},
    disturbs=True,
)
async def permits_come_back(ctx: Context) -> Evidence:
    """Use both permits ten times over; then both, and no third, must be there."""
    (backend,) = ctx.backends
    for _ in range(10):
        if ctx.variant.option == "finished":
            backend.script = well_behaved(backend)
            answers = await asyncio.gather(ctx.ask(), ctx.ask())
            check(all(answer.status == 200 for answer in answers), str(answers[0]))
            continue
        waiting = ctx.variant.option.endswith("head")
        backend.script = hanging if waiting else streaming_then_hanging([b"data: {}\n\n"])
        clients = [await ctx.start(), await ctx.start()]
        await ctx.wait_until(lambda: len(backend.running) == 2, "2 requests at the backend")
        for client in clients:
            if not waiting and ctx.streaming:
                await ctx.wait_until(client.inbox.buffer.strip, "the first event")
            client.close()
        await ctx.wait_until(lambda: not backend.running, "abandoned requests given up")
    backend.exchanges.clear()
    backend.highest_concurrency = 0
    backend.script = streaming_then_hanging([b"data: {}\n\n"])
    holding = [await ctx.start() for _ in range(3)]
    await ctx.wait_until(lambda: len(backend.exchanges) >= 2, "both permits usable")
    await asyncio.sleep(0.3)
    check(backend.highest_concurrency == 2, f"{backend.highest_concurrency} at once with a limit of 2")
    holding[0].close()
    await ctx.wait_until(lambda: len(backend.exchanges) == 3, "the third request goes when one ends")
    return "after 20 requests exactly 2 of 2 permits; the third waited for one to end"


@case(
    "A14",
    "P2",
    "A client closes right after the last event",
    "The request counts as a success.",
    variants=tuple(variant for variant in every_kind() if variant.streaming),
    needs={Capability.ADMIN},
)
async def closed_after_done(ctx: Context) -> Evidence:
    """The backend keeps the stream open after its last event, as some do for a moment."""

    async def lingering(exchange: Exchange) -> None:
        await exchange.start_stream()
        for event in ctx.endpoint.events():
            await exchange.chunk(event)
        await asyncio.sleep(0.2)
        await exchange.end_stream()

    ctx.script_all(lingering)
    before = await _outcomes(ctx)
    last = ctx.endpoint.events()[-1]
    client = await ctx.start()
    await client.inbox.until(last)
    client.close()
    total = sum(before.values())

    async def counted() -> bool:
        return sum((await _outcomes(ctx)).values()) > total

    await ctx.wait_for(counted, "the request counted")
    after = await _outcomes(ctx)
    changed = {
        name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)
    }
    check(not any("client" in name or "failed" in name for name in changed), f"counted as {changed}")
    return f"counted as {next(iter(changed), 'nothing')}"


async def _outcomes(ctx: Context) -> dict[str, int]:
    document = (await ctx.router.admin("/status")).json()
    outcomes: dict[str, int] = document["totals"]["by_outcome"]
    return outcomes


@case(
    "A16",
    "P2",
    "A burst arrives at once at a limit on requests in flight",
    "The limit is not overrun by requests that are judged at the same moment.",
    profile=Profile(backend_count=1, max_in_flight=4, queue_length=100, queue_timeout_seconds=5),
    needs={Capability.QUEUE},
)
async def burst_against_a_limit(ctx: Context) -> Evidence:
    """Forty requests in one moment, four may run."""
    (backend,) = ctx.backends
    backend.script = answering(200, ctx.endpoint.answer(), delay_seconds=0.02)
    connections = [await ctx.connect() for _ in range(40)]
    await asyncio.gather(*(connection.send(ctx.request()) for connection in connections))
    answers = await asyncio.gather(*(ctx.answer(connection) for connection in connections))
    check(all(answer.status == 200 for answer in answers), f"statuses {sorted({a.status for a in answers})}")
    check(backend.highest_concurrency <= 4, f"{backend.highest_concurrency} at once with a limit of 4")
    return f"40 at once, all 200, never more than {backend.highest_concurrency} at the backend"


def open_files(pid: int) -> int:
    """Return how many file descriptors a process has. Raises NotApplicable where that cannot be read."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError as error:
        raise NotApplicable("the router's file descriptors cannot be read") from error
