"""Section H, first part: which backends are believed to work, and what `/v1/models` says of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from conformance.backend import Backend, Script
from conformance.context import Context
from conformance.endpoints import MODEL
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, Variant, check
from conformance.own_router import started
from conformance.profile import Profile
from conformance.registry import case, stream_and_whole
from conformance.scripts import answering, hanging
from conformance.service import carried_kinds, expect_in_service, kind_request, share, together
from conformance.wire import request_bytes

PROBING = Profile(
    health_interval_seconds=0.15,
    health_timeout_seconds=0.25,
    probe_failures=2,
    cooldown_seconds=0.4,
    retries_per_second=1000,
)
"""Two failed probes take a backend out, if nothing speaks for it."""


def _probes(backend: Backend) -> int:
    return sum(exchange.path.startswith("/health") for exchange in backend.control_requests)


async def _let_probes_fail(ctx: Context, backends: Sequence[Backend], *, with_work: bool) -> int:
    """Wait until each of `backends` was asked twice more than takes it out; return how often at least.

    with_work: requests are sent meanwhile and must be answered.
    """
    enough = (ctx.profile.probe_failures or 2) + 2
    before = {backend.name: _probes(backend) for backend in backends}
    began = time.monotonic()
    while True:
        asked = min(_probes(backend) - before[backend.name] for backend in backends)
        if asked >= enough:
            return asked
        if time.monotonic() - began > 15:
            raise NotApplicable("the router does not ask backends for their health as often as it was told")
        if with_work:
            await share(ctx, 6)
        await asyncio.sleep(0.03)


async def _slow(exchange: Exchange) -> None:
    await asyncio.sleep(5)
    await exchange.respond(200, b"")


@case(
    "H1",
    "P0",
    "Probes time out while requests are answered",
    "Busy is not dead: a backend that works stays in service.",
    variants=stream_and_whole(),
    profile=PROBING,
    disturbs=True,
    timeout_seconds=40,
)
async def busy_is_not_dead(ctx: Context) -> Evidence:
    """One backend answers /health far too late, and every request at once."""
    busy = ctx.backends[0]
    busy.control.health = _slow
    asked = await _let_probes_fail(ctx, [busy], with_work=True)
    await expect_in_service(ctx, within_seconds=0)
    return f"{min(asked, 4)} probes without an answer; all 200, all backends in service"


@case(
    "H1b",
    "P0",
    "Probes are slow, and a single one fails now and then",
    "One failure is not enough, and slow is not failed: no backend flaps.",
    profile=Profile(health_interval_seconds=0.15, probe_failures=3, retries_per_second=1000),
    disturbs=True,
)
async def no_flapping(ctx: Context) -> Evidence:
    """Every second probe fails; the others take half a second. Nothing else is sent meanwhile."""
    turns: dict[str, int] = {}

    async def now_and_then(exchange: Exchange) -> None:
        name = exchange.connection.backend.name
        turns[name] = turns.get(name, 0) + 1
        if turns[name] % 2:
            await exchange.respond(500, b"")
        else:
            await asyncio.sleep(0.5)
            await exchange.respond(200, b"")

    for backend in ctx.backends:
        backend.control.health = now_and_then
    for _ in range(10):
        await expect_in_service(ctx, within_seconds=0)
        await asyncio.sleep(0.15)
    if not turns:
        raise NotApplicable("the router does not ask backends for their health as often as it was told")
    return "10 looks over 2 s: all 200, all backends in service each time"


@case(
    "H1c",
    "P0",
    "A backend refuses connections",
    "Refused is dead: the router learns it from a probe, and no client has to.",
    profile=Profile(health_interval_seconds=0.15, probe_failures=2, max_attempts=1),
    disturbs=True,
    timeout_seconds=40,
)
async def refused_is_dead(ctx: Context) -> Evidence:
    """With a single attempt for each request a client would see the refusal."""
    dead = ctx.backends[0]
    others = [backend for backend in ctx.backends if backend is not dead]
    await dead.refuse()
    before = {backend.name: _probes(backend) for backend in others}

    def asked_again() -> bool:
        return all(_probes(backend) >= before[backend.name] + 4 for backend in others)

    await ctx.wait_until(asked_again, "4 rounds of probes", seconds=12)
    await share(ctx, 30)
    await dead.start()
    return f"30 requests without a retry, all 200; {await expect_in_service(ctx, within_seconds=4)}"


@case(
    "H2",
    "P0",
    "All backends are slow or red at once",
    "Not all of them are taken out: requests are still answered.",
    variants=(Variant(option="slow"), Variant(streaming=True, option="red")),
    profile=PROBING,
    disturbs=True,
    timeout_seconds=40,
)
async def panic(ctx: Context) -> Evidence:
    """A fleet that is busy everywhere must not be switched off backend by backend."""
    script: Script = _slow if ctx.variant.option == "slow" else answering(503, b"")
    for backend in ctx.backends:
        backend.control.health = script
    await _let_probes_fail(ctx, ctx.backends, with_work=False)
    used = await share(ctx, 30)
    check(len(used) >= 2, f"only {len(used)} of {len(ctx.backends)} backends carry everything")
    return "no good probe anywhere; 30 requests, all 200, at least 2 of 3 backends carry them"


@case(
    "H3",
    "P1",
    "A backend is green and hung",
    "A few timeouts of requests take it out, whatever its /health says.",
    variants=stream_and_whole(),
    profile=Profile(
        first_byte_timeout_seconds=0.3,
        request_failures=3,
        cooldown_seconds=1.5,
        health_interval_seconds=0.15,
        retries_per_second=1000,
    ),
    disturbs=True,
)
async def green_and_hung(ctx: Context) -> Evidence:
    """A wave of different prompts meets the hung backend, the next ones must not."""
    hung = ctx.backends[0]
    await share(ctx, 20)  # what the variant before has left behind is over
    hung.script = hanging
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(24)]
    answers = await together(*(ctx.answer(client) for client in clients))
    timeouts = sum(answer.status != 200 for answer in answers)
    check(timeouts >= 3, f"only {timeouts} of 24 requests met the hung backend")
    before = len(hung.exchanges)
    await share(ctx, 20)
    got = len(hung.exchanges) - before
    check(got == 0, f"{got} of the next 20 requests went to it")
    check(_probes(hung), "it was not probed")
    return "out after a few timeouts with a green /health: the next 20 requests all 200 elsewhere"


@case(
    "H5",
    "P0",
    "One backend's /v1/models is broken",
    "The router's answers 200 with the models of the others, every time and at once.",
    variants=tuple(Variant(option=option) for option in ("500", "garbage", "hangs", "refused")),
    profile=Profile(health_interval_seconds=0.2),
    disturbs=True,
)
async def models_of_the_others(ctx: Context) -> Evidence:
    """Also by a router that starts while it is so."""
    broken = ctx.backends[0]
    scripts: dict[str, Script] = {
        "500": answering(500, b"{}"),
        "garbage": answering(200, b"<html>"),
        "hangs": hanging,
    }
    if ctx.variant.option == "refused":
        await broken.refuse()
    else:
        broken.control.models = scripts[ctx.variant.option]
    for _ in range(8):
        await _models(ctx, {MODEL})
    return "8 times 200 with the model"


async def _models(ctx: Context, wanted: set[str]) -> list[dict[str, object]]:
    answer = await ctx.ask(request_bytes("/v1/models", method="GET"), seconds=2)
    check(answer.status == 200, f"/v1/models: {answer}")
    objects: list[dict[str, object]] = answer.json()["data"]
    found = {str(entry["id"]) for entry in objects}
    check(found == wanted, f"/v1/models lists {sorted(found)}, not {sorted(wanted)}")
    return objects


async def _models_at_last(ctx: Context, wanted: set[str], *, seconds: float) -> None:
    async def complete() -> bool:
        answer = await ctx.ask(request_bytes("/v1/models", method="GET"))
        return answer.status == 200 and {entry["id"] for entry in answer.json()["data"]} == wanted

    await ctx.wait_for(complete, f"/v1/models lists {sorted(wanted)}", seconds=seconds)


@case(
    "H5b",
    "P0",
    "Backends serve different models, and one of them goes down",
    "/v1/models is the union over the backends that are there.",
    disturbs=True,
    timeout_seconds=40,
)
async def union_of_models(ctx: Context) -> Evidence:
    """Asked of a router of its own, that has seen nothing else."""
    for backend in ctx.backends:
        own = {"id": f"model-{backend.name}", "object": "model", "owned_by": "vllm"}
        backend.control.model_objects = [*backend.control.model_objects, own]
    every = {MODEL, *(f"model-{backend.name}" for backend in ctx.backends)}
    async with started(ctx, Profile(health_interval_seconds=0.2)) as own_ctx:
        await _models_at_last(own_ctx, every, seconds=3)
        await ctx.backends[0].refuse()
        for _ in range(4):
            answer = await own_ctx.ask(request_bytes("/v1/models", method="GET"), seconds=2)
            check(answer.status == 200, f"one backend down: {answer}")
        await _models_at_last(own_ctx, every - {"model-a"}, seconds=4)
    return f"{len(every)} models; {len(every) - 1} when one backend is down, 200 all the time"


@case(
    "H6",
    "P0",
    "No backend is there",
    "503 with a JSON error and Retry-After, at once, on every kind of endpoint.",
    profile=Profile(health_interval_seconds=0.2),
    disturbs=True,
)
async def nobody_there(ctx: Context) -> Evidence:
    """The first request may find out; each later one gets its answer within 250 ms."""
    kinds = await carried_kinds(ctx)
    for backend in ctx.backends:
        await backend.refuse()
    first = await ctx.ask(ctx.request(ctx.unique()))
    check(first.status >= 500, f"the first request: {first}")
    for kind in kinds:
        began = time.monotonic()
        answer = await ctx.ask(kind_request(ctx, kind))
        milliseconds = (time.monotonic() - began) * 1000
        check(answer.status == 503, f"{kind.name}: {answer}")
        check(answer.get("retry-after"), f"{kind.name}: no Retry-After with {answer}")
        check((answer.get("content-type") or "").startswith("application/json"), f"{kind.name}: not JSON")
        check("error" in answer.json(), f"{kind.name}: {answer}")
        check(milliseconds < 250, f"{kind.name}: after {milliseconds:.0f} ms")
    return f"{len(kinds)} kinds of requests, each 503 with JSON and Retry-After within 250 ms"


@case(
    "H17",
    "P2",
    "The router reads the metrics of backends",
    "Not more often than once a second, and never twice at a time from one backend.",
    profile=Profile(engine_metrics_seconds=1),
)
async def gentle_scraping(ctx: Context) -> Evidence:
    """One backend is slow to answer."""
    open_now = highest = 0

    async def slow(exchange: Exchange) -> None:
        nonlocal open_now, highest
        open_now += 1
        highest = max(highest, open_now)
        try:
            await asyncio.sleep(1.5)
            await exchange.respond(200, b"")
        finally:
            open_now -= 1

    ctx.backends[0].control.metrics = slow
    await asyncio.sleep(2.6)
    counts = [
        sum(exchange.path == "/metrics" for exchange in backend.control_requests) for backend in ctx.backends
    ]
    check(sum(counts), "asked for every second, and nothing was read")
    check(max(counts) <= 4, f"{counts} readings in 2.6 s")
    check(highest <= 1, f"{highest} readings at a time from one backend")
    return f"at most {max(counts)} readings in 2.6 s from each backend, one at a time"


@case(
    "H23",
    "P2",
    "Model objects carry more than a name",
    "They reach the client as the backend wrote them.",
    timeout_seconds=40,
)
async def model_objects_unchanged(ctx: Context) -> Evidence:
    """max_model_len, root, parent, permissions, and what a later version may add."""
    wanted = {
        "id": MODEL,
        "object": "model",
        "created": 12,
        "owned_by": "vllm",
        "root": "/models/base",
        "parent": None,
        "max_model_len": 131072,
        "permission": [{"id": "modelperm-1", "allow_logprobs": True, "organization": "*"}],
        "later": {"added": [1, 2.5, "caf\u00e9"]},
    }
    for backend in ctx.backends:
        backend.control.model_objects = [wanted]
    async with started(ctx, ctx.profile) as own_ctx:
        await _models_at_last(own_ctx, {MODEL}, seconds=3)
        (found,) = await _models(own_ctx, {MODEL})
    changed = sorted(
        key for key in wanted.keys() | found.keys() if wanted.get(key, "gone") != found.get(key, "gone")
    )
    check(not changed, f"changed or gone: {changed}")
    return f"all {len(wanted)} fields as the backend wrote them"
