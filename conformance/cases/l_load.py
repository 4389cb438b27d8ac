"""Section L, second part: affinity under load: hot prefixes, dead homes, bursts, and the way back."""

from __future__ import annotations

import asyncio
import random

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange
from conformance.model import Evidence, Variant, check
from conformance.placing import (
    GROUPS,
    Placing,
    expect_bounded,
    expect_same,
    expect_spread,
    head,
    held,
)
from conformance.profile import Profile, Strategy
from conformance.registry import case, stream_and_whole
from conformance.scripts import answering, well_behaved
from conformance.sharing import Gate
from conformance.wire import request_bytes

BY_LOAD = Profile(strategy=Strategy.LEAST_LOADED)

FAIR_FACTOR = 2.0
"""What a bounded share is: at most so many times a fair one."""


def _turns(ctx: Context, system: str, text: str) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return ctx.request(fields={"messages": messages})


@case(
    "L2",
    "P0",
    "Everybody shares a long system prompt",
    "Under load no backend gets more than twice its fair share.",
    variants=stream_and_whole("150 at a time", "600 at a time"),
    timeout_seconds=40,
)
async def shared_system_prompt(ctx: Context) -> Evidence:
    """Longer than what is hashed, so that all have one key. All requests are held until the last has come."""
    system = head()
    count = int(ctx.variant.option.split()[0])
    requests = [_turns(ctx, system, ctx.unique()) for _ in range(count)]
    async with held(ctx, requests) as counts:
        return expect_bounded(counts, len(ctx.backends), FAIR_FACTOR)


@case(
    "L3",
    "P0",
    "A quarter of the requests share a prefix, and every backend is busy",
    "What does not fit at a home spreads; nobody gets more than twice a fair share.",
    variants=stream_and_whole(),
    timeout_seconds=40,
)
async def all_busy(ctx: Context) -> Evidence:
    """400 requests at a time on three backends: above any default threshold known to us."""
    hot = head()
    requests = [ctx.request(f"{hot} {ctx.unique()}" if at % 4 == 0 else head(2000)) for at in range(400)]
    async with held(ctx, requests) as counts:
        return expect_bounded(counts, len(ctx.backends), FAIR_FACTOR)


@case(
    "L4",
    "P0",
    "Even load with the noise of random arrivals",
    "At least 95% of the requests go where their prefix is.",
    variants=stream_and_whole(),
)
async def noise_is_no_load(ctx: Context) -> Evidence:
    """240 requests of 40 prefixes, about 12 at a time, random service times."""
    draw = random.Random(4)
    heads = [head() for _ in range(40)]
    place = Placing(ctx)
    homes = {text[:32]: await place.of(ctx.request(text)) for text in heads}
    for backend in ctx.backends:
        backend.exchanges.clear()

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(draw.uniform(0.01, 0.05))
        await exchange.respond(200, b"{}")

    ctx.script_all(slow)
    work = [text for text in heads for _ in range(6)]
    draw.shuffle(work)

    async def client() -> None:
        connection = await ctx.connect()
        while work:
            await asyncio.sleep(draw.expovariate(200))
            if not work:
                break
            await connection.send(ctx.request(f"{work.pop()} {ctx.unique()}"))
            check((answer := await ctx.answer(connection)).status == 200, str(answer))

    await asyncio.gather(*(client() for _ in range(12)))
    total = kept = 0
    for backend in ctx.backends:
        for exchange in backend.exchanges:
            text = exchange.body.decode()
            total += 1
            kept += any(home == backend.name and word in text for word, home in homes.items())
    check(kept >= 0.95 * total, f"only {kept} of {total} went to their prefix")
    return f"{kept} of {total} went to their prefix"


@case(
    "L6",
    "P0",
    "One backend is hot",
    "The prefixes of the others stay where they are.",
    variants=stream_and_whole(),
    timeout_seconds=40,
)
async def hot_neighbour(ctx: Context) -> Evidence:
    """One prefix piles up on its home until the router's own rule sends it elsewhere."""
    place = Placing(ctx)
    heads = [head() for _ in range(2 * GROUPS)]
    before = await place.of_all(ctx.request(text) for text in heads)
    expect_spread(ctx, before, "prefixes")
    hot = head()
    hottest = await place.of(ctx.request(hot))
    gate = Gate()
    for backend in ctx.backends:
        backend.script = gate.script if backend.name == hottest else well_behaved(backend)
    for _ in range(120):
        await ctx.start(ctx.request(f"{hot} {ctx.unique()}"))
    await asyncio.sleep(0.3)
    running = ctx.running_count
    others = [(text, home) for text, home in zip(heads, before, strict=True) if home != hottest]
    check(running >= 10, f"only {running} requests piled up")
    after = await place.of_all(ctx.request(text) for text, _ in others)
    gate.open()
    evidence = expect_same([home for _, home in others], after, "prefixes of the others", tolerate=0.05)
    return f"{running} requests on one backend; {evidence}"


@case(
    "L7",
    "P0",
    "The home of many prefixes dies",
    "They spread over the others (no survivor gets more than three quarters); other prefixes stay.",
    variants=stream_and_whole(),
    profile=Profile(health_interval_seconds=1, cooldown_seconds=1),
    disturbs=True,
)
async def dead_home(ctx: Context) -> Evidence:
    """First the requests that notice it, then the count."""
    place = Placing(ctx)
    heads = [head(400) for _ in range(180)]
    before = await place.of_all(ctx.request(text) for text in heads)
    expect_spread(ctx, before, "prefixes")
    dead = ctx.backends[2]
    check(dead.name in before, "one backend got no prefix at all")
    await dead.refuse()

    async def noticed() -> bool:
        return all([(await ctx.ask(ctx.request(text))).status == 200 for text in heads[:6]])

    await ctx.wait_for(noticed, "requests succeed without it", seconds=6)
    after = await place.of_all(ctx.request(text) for text in heads)
    moved = [new for old, new in zip(before, after, strict=True) if old == dead.name]
    stayed = [(old, new) for old, new in zip(before, after, strict=True) if old != dead.name]
    share = max(moved.count(name) for name in set(moved)) / len(moved)
    check(share <= 0.75, f"{share:.0%} of its {len(moved)} prefixes went to one backend")
    same = expect_same([old for old, _ in stayed], [new for _, new in stayed], "others", tolerate=0.05)
    return f"its {len(moved)} prefixes: {share:.0%} on the fuller survivor; {same}"


@case(
    "L8",
    "P0",
    "A burst on an idle fleet",
    "Each request counts before the next is placed: nobody gets more than half more than a fair share.",
    variants=stream_and_whole("one connection each", "at once"),
    profile=BY_LOAD,
)
async def burst(ctx: Context) -> Evidence:
    """Under a least-loaded policy; stale counts would send all of it to one backend."""
    requests = [ctx.request(ctx.unique()) for _ in range(60)]
    if ctx.variant.option == "at once":
        gate = Gate()
        ctx.script_all(gate.script)
        connections = [await ctx.connect() for _ in requests]
        await asyncio.gather(
            *(one.send(data) for one, data in zip(connections, requests, strict=True)),
        )
        await ctx.wait_until(lambda: ctx.work_count == 60, "60 requests at the backends")
        shares = sorted((len(backend.exchanges) for backend in ctx.backends), reverse=True)
        gate.open()
        check(shares[0] <= 30, f"shares {shares}")
        return f"shares {shares} of 60"
    async with held(ctx, requests) as counts:
        return expect_bounded(counts, len(ctx.backends), 1.5)


@case(
    "L27",
    "P1",
    "After a spike",
    "Overflow moves no home: once the spike is over, at least 95% of the prefixes are where they were.",
    variants=stream_and_whole(),
    timeout_seconds=40,
)
async def home_again(ctx: Context) -> Evidence:
    """The spike is 300 requests of one prefix at a time, and some of all the others."""
    place = Placing(ctx)
    heads = [head() for _ in range(GROUPS)]
    before = await place.of_all(ctx.request(text) for text in heads)
    hot = heads[0]
    spike = [ctx.request(f"{hot if at % 3 else heads[at % GROUPS]} {at}") for at in range(300)]
    async with held(ctx, spike) as counts:
        shares = sorted(counts.values(), reverse=True)
    await ctx.expect_nothing_in_flight()
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    after = await place.of_all(ctx.request(text) for text in heads)
    return f"spike {shares}; {expect_same(before, after, 'prefixes afterwards', tolerate=0.05)}"


@case(
    "L28",
    "P2",
    "Backends that offer what vLLM offers, and no more",
    "The router needs no other source of load: requests spread by its own counts.",
    profile=BY_LOAD,
    fresh=True,
)
async def no_foreign_endpoints(ctx: Context) -> Evidence:
    """The suite's backends answer 404 to `/get_load` and its like, as vLLM does."""
    async with held(ctx, [ctx.request(ctx.unique()) for _ in range(30)]) as counts:
        evidence = expect_bounded(counts, len(ctx.backends), 1.5)
    asked = sorted({e.path.partition("?")[0] for b in ctx.backends for e in b.control_requests})
    return f"{evidence}; backends are asked for {', '.join(asked) or 'nothing meanwhile'}"


@case(
    "L30",
    "P2",
    "Requests that share nothing",
    "With unique prompts a prefix policy is as even as a policy by load.",
    variants=(Variant(Endpoint.CHAT), Variant(Endpoint.COMPLETIONS, True)),
)
async def nothing_shared(ctx: Context) -> Evidence:
    """The cost of affinity where it cannot help. Times belong to a benchmark; evenness is seen here."""
    place = Placing(ctx)
    ctx.script_all(answering())
    names = await place.of_all(
        request_bytes(ctx.endpoint.path, ctx.endpoint.request(head(300), stream=ctx.streaming))
        for _ in range(120)
    )
    expect_spread(ctx, names, "unique prompts")
    shares = sorted((names.count(backend.name) for backend in ctx.backends), reverse=True)
    check(shares[0] <= 60, f"shares {shares} of 120")
    return f"shares {shares} of 120"
