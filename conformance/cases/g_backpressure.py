"""Section G, first part: full or failing backends, and what a router may conclude from them."""

from __future__ import annotations

import asyncio
from collections import Counter

from conformance.backend import Script
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Evidence, Variant, check
from conformance.profile import Profile, Strategy
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import answering, resetting, well_behaved
from conformance.service import REQUESTS, allow_files, expect_in_service, share, take_out, together
from conformance.wire import Answer

RETRY_AFTER = ("Retry-After", "1")

BREAKER = Profile(request_failures=3, retries_per_second=1000)
"""Three failures take a backend out, and not for a moment only: what is wrongly held against it shows."""

RECOVERING = Profile(
    request_failures=3, cooldown_seconds=0.4, health_interval_seconds=0.2, retries_per_second=1000
)
"""Backends come back soon."""

NEVER_OUT = Profile(request_failures=1000, retries_per_second=1000)
"""Failures are the point; they must not take a backend out."""


def _full(ctx: Context, status: int) -> Script:
    return answering(status, ctx.endpoint.error(status, "the queue is full"), [RETRY_AFTER])


@case(
    "G2",
    "P0",
    "A backend says that it is full",
    "503 and 429 are no fault: another backend answers, and the full one is used again as soon as it is not.",
    variants=(*every_kind("503"), *stream_and_whole("429")),
    profile=BREAKER,
    disturbs=True,
)
async def full_is_not_broken(ctx: Context) -> Evidence:
    """More refusals than failures would take a backend out. Retry-After may keep requests away for 1 s."""
    full, *others = ctx.backends
    full.script = _full(ctx, int(ctx.variant.option))
    for _ in range(REQUESTS):
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(answer.status == 200, f"one of {len(others) + 1} backends is full: {answer}")
        if len(full.exchanges) > 4:
            break
    refused = len(full.exchanges)
    await expect_in_service(ctx, within_seconds=1.5)
    return f"{min(refused, 4)} or more refusals, all 200, then all backends in service"


@case(
    "G2b",
    "P0",
    "All backends say that they are full",
    "The client gets 503 or 429 with Retry-After; as soon as they have room, all is well.",
    variants=stream_and_whole("503", "429"),
    profile=BREAKER,
    disturbs=True,
)
async def all_full(ctx: Context) -> Evidence:
    """Twelve refused requests would open a breaker on every backend."""
    ctx.script_all(_full(ctx, int(ctx.variant.option)))
    for _ in range(12):
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(answer.status in (503, 429), str(answer))
        check(answer.get("retry-after"), f"no Retry-After with {answer}")
    await expect_in_service(ctx, within_seconds=1.5)
    return "12 refused with Retry-After, then all 200 and all backends in service"


@case(
    "G3",
    "P0",
    "A storm of requests meets backends that take a part of it",
    "Each client gets 200, or 503 or 429; no living backend counts as dead afterwards.",
    variants=stream_and_whole(),
    profile=BREAKER,
    disturbs=True,
)
async def storm(ctx: Context) -> Evidence:
    """Six hundred at once; each backend works on a hundred and refuses the others."""
    count = 600
    allow_files(5 * count)

    async def limited(exchange: Exchange) -> None:
        backend = exchange.connection.backend
        if len(backend.running) > 100:
            await _full(ctx, 503)(exchange)
        else:
            await asyncio.sleep(0.1)
            await well_behaved(backend)(exchange)

    ctx.script_all(limited)
    clients: list[ClientConnection] = [await ctx.connect() for _ in range(count)]
    await together(*(client.send(ctx.request(ctx.unique())) for client in clients))
    answers: list[Answer] = await together(*(ctx.answer(client, seconds=20) for client in clients))
    statuses = Counter(answer.status for answer in answers)
    check(set(statuses) <= {200, 429, 503}, f"statuses {dict(statuses)}")
    check(statuses[200], f"nobody was served: statuses {dict(statuses)}")
    await expect_in_service(ctx, within_seconds=1.5)
    return f"{count} at once: 200 or refused, then all 200 and all backends in service"


@case(
    "G4",
    "P1",
    "One prompt makes every backend fail",
    "Sent again and again, it does not take the fleet out of service for everybody else.",
    variants=(*every_kind("500"), *stream_and_whole("reset")),
    profile=BREAKER,
    disturbs=True,
)
async def poison(ctx: Context) -> Evidence:
    """Twelve times the same prompt, far more than takes a backend out."""
    prompt = ctx.unique("poison")

    async def script(exchange: Exchange) -> None:
        if prompt.encode() not in exchange.body:
            await well_behaved(exchange.connection.backend)(exchange)
        elif ctx.variant.option == "500":
            await exchange.respond(500, ctx.endpoint.error(500))
        else:
            exchange.reset()

    ctx.script_all(script)
    for _ in range(12):
        answer = await ctx.ask(ctx.request(prompt))
        check(answer.status >= 500, f"poisoned, and yet {answer}")
    used = await share(ctx, 20)
    check(len(used) >= 2, f"only {len(used)} of {len(ctx.backends)} backends in service afterwards")
    return "12 poisoned requests, then all others 200 on at least 2 of 3 backends"


@case(
    "G6",
    "P0",
    "A backend that fails at once looks idle",
    "A least-loaded policy does not pour requests into it.",
    variants=(Variant(option="500"), Variant(streaming=True, option="reset")),
    profile=Profile(
        strategy=Strategy.LEAST_LOADED, request_failures=3, cooldown_seconds=2, retries_per_second=1000
    ),
    disturbs=True,
)
async def fast_failures(ctx: Context) -> Evidence:
    """The others take 50 ms for each request. A fair third would be 80 of 240."""
    failing, *others = ctx.backends
    failing.script = answering(500, ctx.endpoint.error(500)) if ctx.variant.option == "500" else resetting
    for backend in others:
        backend.script = answering(200, ctx.endpoint.answer(), delay_seconds=0.05)
    statuses: Counter[int] = Counter()

    async def client() -> None:
        for _ in range(20):
            statuses[(await ctx.ask(ctx.request(ctx.unique()))).status] += 1

    await together(*(client() for _ in range(12)))
    got = sum(exchange.path == ctx.endpoint.path for exchange in failing.exchanges)
    check(got <= 40, f"the failing backend got {got} of 240 requests")
    check(statuses[200] >= 200, f"statuses {dict(statuses)}")
    return f"it got {got} of 240 requests, {statuses[200]} of them were answered with 200"


@case(
    "G7",
    "P1",
    "All backends fail",
    "Retries do not multiply the load: at most 1.5 tries for each request, and none tried more than 5 times.",
    variants=(Variant(option="503"), Variant(streaming=True, option="reset")),
    profile=Profile(cooldown_seconds=0.4, health_interval_seconds=0.2),
    disturbs=True,
)
async def no_amplification(ctx: Context) -> Evidence:
    """Four hundred requests by 25 clients, with the router's own settings for retries."""
    count, at_a_time = 400, 25
    tries: Counter[bytes] = Counter()

    async def script(exchange: Exchange) -> None:
        if exchange.path == ctx.endpoint.path:  # a router may ask something of its own about a prompt
            tries[exchange.body] += 1
        await (resetting if ctx.variant.option == "reset" else _full(ctx, 503))(exchange)

    ctx.script_all(script)

    async def client() -> None:
        for _ in range(count // at_a_time):
            answer = await ctx.ask(ctx.request(ctx.unique()))
            check(answer.status >= 429, str(answer))

    await together(*(client() for _ in range(at_a_time)))
    each = sum(tries.values()) / count
    most = max(tries.values())
    check(each <= 1.5, f"{each:.2f} tries for each of {count} requests")
    check(most <= 5, f"one request was tried {most} times")
    return f"{each:.2f} tries for each of {count} requests, none more than {most} times"


async def _trial(ctx: Context, *, leave: bool) -> Evidence:
    """Take a backend out, let it hold the first request that it is tried with, and see it come back."""
    victim = ctx.backends[0]
    victim.script = answering(500, ctx.endpoint.error(500))
    failed = await take_out(ctx, victim)
    held: list[Exchange] = []

    async def holding(exchange: Exchange) -> None:
        if held:
            await well_behaved(victim)(exchange)
        else:
            held.append(exchange)
            await exchange.forever()

    victim.script = holding

    async def tried() -> bool:
        client = await ctx.start(ctx.request(ctx.unique()))
        await ctx.wait_until(lambda: client.inbox.buffer or client.inbox.ended or held, "an answer")
        if leave or not held:
            client.close()
        return bool(held)

    await ctx.wait_for(tried, "a request that tries the backend again", seconds=6)
    came_back = await expect_in_service(ctx, within_seconds=6)
    return f"out after {failed} failures; its first trial was {'left' if leave else 'held'}; {came_back}"


@case(
    "G8",
    "P1",
    "A backend that was taken out has recovered",
    "It comes back to full service, also when the client of its first trial leaves.",
    variants=(
        Variant(option="recovered"),
        Variant(option="trial left"),
        Variant(streaming=True, option="trial left"),
    ),
    profile=RECOVERING,
    disturbs=True,
)
async def comes_back(ctx: Context) -> Evidence:
    """Half-open must end in one way or the other."""
    if ctx.variant.option == "trial left":
        return await _trial(ctx, leave=True)
    victim = ctx.backends[0]
    victim.script = answering(500, ctx.endpoint.error(500))
    failed = await take_out(ctx, victim)
    return f"out after {failed} failures; {await expect_in_service(ctx, within_seconds=6)}"


@case(
    "G8b",
    "P1",
    "The first request that tries a recovered backend is never answered",
    "The trial ends with the first-byte timeout, another follows, and the backend comes back.",
    variants=(Variant(), Variant(streaming=True)),
    profile=Profile(
        request_failures=3,
        cooldown_seconds=0.4,
        health_interval_seconds=0.2,
        first_byte_timeout_seconds=0.5,
        retries_per_second=1000,
    ),
    disturbs=True,
)
async def trial_times_out(ctx: Context) -> Evidence:
    """A slot for one trial that is never given back would keep the backend out for ever."""
    return await _trial(ctx, leave=False)


@case(
    "G8c",
    "P1",
    "The first request that tries a recovered backend takes very long",
    "The slot for a trial has a time limit of its own: others try the backend, and it comes back.",
    variants=(Variant(), Variant(streaming=True)),
    profile=RECOVERING,
    disturbs=True,
)
async def trial_takes_long(ctx: Context) -> Evidence:
    """With the router's own timeouts, made for long generations. The cooldown is 0.4 s."""
    return await _trial(ctx, leave=False)
