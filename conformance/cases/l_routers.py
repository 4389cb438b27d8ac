"""Section L, third part: several routers in front of one fleet, and what a router keeps and tells."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.launchers.base import RunningRouter
from conformance.model import Capability, Evidence, check
from conformance.placing import GROUPS, Placing, expect_same, head
from conformance.profile import Profile, Strategy
from conformance.registry import case
from conformance.scripts import answering
from conformance.wire import request_bytes

BY_LOAD = Profile(strategy=Strategy.LEAST_LOADED)


@contextlib.asynccontextmanager
async def _more_routers(ctx: Context, count: int) -> AsyncIterator[list[RunningRouter]]:
    """Give the case's router and `count` more with the same settings and backends."""
    launcher = ctx.router.launcher
    started = await asyncio.gather(*(launcher.start(ctx.profile, ctx.backends) for _ in range(count)))
    try:
        for backend in ctx.backends:
            backend.exchanges.clear()
        yield [ctx.router, *started]
    finally:
        await asyncio.gather(*(router.stop() for router in started))


@case(
    "L22",
    "P1",
    "Several routers in front of one fleet",
    "The hit rate with four routers is that with one, within one percentage point.",
    needs={Capability.FRESH},
    timeout_seconds=60,
)
async def several_routers(ctx: Context) -> Evidence:
    """50 prefixes four times each, first through one router, then other 50 in turn through four."""

    async def hit_rate(routers: list[RunningRouter]) -> tuple[float, int]:
        queried = sum(backend.cache.queried_tokens for backend in ctx.backends)
        hit = sum(backend.cache.hit_tokens for backend in ctx.backends)
        places = [Placing(ctx, router) for router in routers]
        heads = [head(5000) for _ in range(50)]
        homes: dict[str, set[str]] = {}
        for turn in range(4):
            for at, text in enumerate(heads):
                place = places[(at + turn) % len(places)]
                homes.setdefault(text, set()).add(await place.of(ctx.request(f"{text} {turn}")))
        for place in places:
            place.close()
        queried = sum(backend.cache.queried_tokens for backend in ctx.backends) - queried
        hit = sum(backend.cache.hit_tokens for backend in ctx.backends) - hit
        return hit / queried, sum(len(names) == 1 for names in homes.values())

    async with _more_routers(ctx, 3) as routers:
        alone, _ = await hit_rate(routers[:1])
        together, agreed = await hit_rate(routers)
    told = f"hit rate {alone:.3f} with one router, {together:.3f} with four"
    check(together >= alone - 0.01, f"{told}; {agreed} of 50 prefixes had one home")
    return f"{told}; {agreed} of 50 prefixes had one home"


@case(
    "L22b",
    "P1",
    "The same request through several routers",
    "Each router sends it to the same backend.",
    needs={Capability.FRESH, Capability.DECISION_HEADERS},
    timeout_seconds=60,
)
async def routers_agree(ctx: Context) -> Evidence:
    """200 prompts of five kinds of request, through three routers, in a different order each."""
    async with _more_routers(ctx, 2) as routers:
        requests = [
            request_bytes(endpoint.path, endpoint.request(head(200)))
            for endpoint in Endpoint
            for _ in range(40)
        ]
        answers: list[list[str]] = []
        for router in routers:
            place = Placing(ctx, router)
            order = requests if router is ctx.router else requests[::-1]
            names = await place.of_all(order)
            answers.append(names if order is requests else names[::-1])
            place.close()
    expect_same(answers[0], answers[1], "the second router")
    return expect_same(answers[0], answers[2], "the third router")


@case(
    "L23",
    "P1",
    "Several routers choose the least loaded of an idle fleet",
    "They do not all choose the same one: no backend gets more than twice a fair share.",
    profile=BY_LOAD,
    needs={Capability.FRESH},
    timeout_seconds=60,
)
async def no_herd(ctx: Context) -> Evidence:
    """One request through each of four routers at a time, 15 times; none knows of the others."""
    ctx.script_all(answering(delay_seconds=0.02))
    async with _more_routers(ctx, 3) as routers:
        places = [Placing(ctx, router) for router in routers]
        for place in places:
            await place.open()
        for _ in range(15):
            await asyncio.gather(*(place.send(ctx.request(ctx.unique())) for place in places))
        for place in places:
            place.close()
    shares = sorted((len(backend.exchanges) for backend in ctx.backends), reverse=True)
    check(sum(shares) >= 60, f"only {sum(shares)} requests came")
    check(shares[0] <= 40, f"shares {shares} of {sum(shares)}")
    return f"shares {shares} of {sum(shares)}"


@case(
    "L24",
    "P1",
    "Many different prompts",
    "The router keeps nothing of them: memory does not grow with what was sent.",
    needs={Capability.PROCESS, Capability.FRESH},
    fresh=True,
    timeout_seconds=60,
)
async def nothing_kept(ctx: Context) -> Evidence:
    """Two rounds to warm up, then 20 MB of prompts; growth by a quarter of that fails."""
    ctx.script_all(answering())

    async def round_of(count: int) -> int:
        async def client() -> None:
            place = Placing(ctx)
            for _ in range(count // 8):
                await place.send(ctx.request(head(16_000)))

        await asyncio.gather(*(client() for _ in range(8)))
        for backend in ctx.backends:
            backend.exchanges.clear()
        return ctx.memory_bytes()

    await round_of(320)
    warm = await round_of(320)
    grown = await round_of(1280) - warm
    sent = 1280 * 16_000
    told = f"{grown / 2**20:+.1f} MiB over {sent / 2**20:.0f} MiB of different prompts"
    check(grown < sent / 4, told)
    return told


@case(
    "L26",
    "P2",
    "The settings in force",
    "Every setting that was given can be read back from the running router.",
    profile=Profile(threshold=7, max_body_bytes=123_456, max_attempts=2),
    needs={Capability.ADMIN},
)
async def settings_told(ctx: Context) -> Evidence:
    """A setting that is accepted and ignored is worse than one that is refused."""
    answer = await ctx.router.admin("/config")
    check(answer.status == 200, str(answer))
    document = answer.json()
    document = document.get("settings", document)
    told = {
        "routing.concurrency_threshold": document["routing"]["concurrency_threshold"],
        "limits.max_body_bytes": document["limits"]["max_body_bytes"],
        "retry.max_attempts": document["retry"]["max_attempts"],
    }
    check(list(told.values()) == [7, 123_456, 2], f"told {told}")
    return ", ".join(f"{name} = {value}" for name, value in told.items())


@case(
    "L31",
    "P2",
    "Why would this request go there?",
    "The router explains a decision for a given body, and then decides so.",
    needs={Capability.ADMIN},
)
async def explained(ctx: Context) -> Evidence:
    """24 bodies: explained first, then sent."""
    place = Placing(ctx)
    names = {backend.url.removeprefix("http://"): backend.name for backend in ctx.backends}
    told: list[str] = []
    went: list[str] = []
    for _ in range(GROUPS):
        body = Endpoint.CHAT.request(head(300))
        answer = await ctx.router.admin(f"/explain?path={Endpoint.CHAT.path}", method="POST", body=body)
        check(answer.status == 200, str(answer))
        text = json.dumps(answer.json().get("decision", answer.json()))
        found = [name for url, name in names.items() if url in text]
        told.append(found[0] if len(found) == 1 else _backend_of(answer.json(), names))
        went.append(await place.of(request_bytes(Endpoint.CHAT.path, body)))
    return expect_same(told, went, "as explained")


def _backend_of(document: dict[str, object], names: dict[str, str]) -> str:
    decision = document.get("decision")
    backend = decision.get("backend") if isinstance(decision, dict) else document.get("backend")
    return names.get(str(backend), str(backend))


@case(
    "L20b",
    "P1",
    "The same `prompt_cache_key` for two models or two tenants",
    "Model and salt are part of the key: the same name elsewhere is another key.",
    needs={Capability.ADMIN},
)
async def key_is_scoped(ctx: Context) -> Evidence:
    """The router says which key it made of a body."""

    async def key(**fields: Any) -> str:
        body = Endpoint.CHAT.request("the same", **({"prompt_cache_key": "team"} | fields))
        answer = await ctx.router.admin(f"/explain?path={Endpoint.CHAT.path}", method="POST", body=body)
        check(answer.status == 200, str(answer))
        return str(answer.json()["key"])

    keys = {
        "plain": await key(),
        "another model": await key(model="another"),
        "another salt": await key(cache_salt="tenant-2"),
        "another name": await key(prompt_cache_key="team2"),
    }
    check(len(set(keys.values())) == len(keys), f"keys {keys}")
    check(await key() == keys["plain"], "the same body has got another key")
    return "other model, other salt, other name: other keys"
