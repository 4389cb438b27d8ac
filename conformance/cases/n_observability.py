"""Section N, first part: what a router tells of itself: metrics and logs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from conformance.context import Context
from conformance.endpoints import MODEL, Endpoint
from conformance.exchange import Exchange
from conformance.exposition import metrics_text, series, total
from conformance.model import Capability, CaseFailed, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, stream_and_whole
from conformance.scripts import answering, resetting
from conformance.wire import request_bytes

FIRST_TOKEN = r"(ttft|first_token|first_tok).*_(sum|count)$"

SECRET = "conformance-secret-7f3a"


async def _sum_and_count(ctx: Context, names: str) -> tuple[float, float]:
    text = await metrics_text(ctx)
    return total(text, rf"({names}).*_sum$") or 0.0, total(text, rf"({names}).*_count$") or 0.0


@case(
    "N1",
    "P1",
    "Clients invent models, paths and methods",
    "No metric has them as labels; the number of series stays bounded.",
    variants=(
        Variant(option="models"),
        Variant(Endpoint.COMPLETIONS, True, "models"),
        Variant(option="paths"),
        Variant(option="methods"),
        Variant(option="headers"),
    ),
    needs={Capability.METRICS},
)
async def bounded_labels(ctx: Context) -> Evidence:
    """80 of each. Whoever can invent labels can fill the memory of the router and of Prometheus."""

    def request(at: int) -> bytes:
        word = f"invented{at}x{tag}"
        option = ctx.variant.option
        body = ctx.endpoint.request(ctx.unique(), stream=ctx.streaming)
        if option == "models":
            return request_bytes(ctx.endpoint.path, body.replace(MODEL.encode(), word.encode()))
        if option == "headers":
            headers = [("X-Tenant", word), ("User-Agent", word), ("Authorization", f"Bearer {word}")]
            return request_bytes(ctx.endpoint.path, body, headers=headers)
        if option == "paths":
            return request_bytes(f"/v1/{word}?q={word}", body)
        return request_bytes(ctx.endpoint.path, body, method=f"M{at}{tag}".upper())

    tag = ctx.unique()[:8]
    ctx.script_all(answering())
    await ctx.ask(request(-1))
    before = len(series(await metrics_text(ctx)))
    for at in range(80):
        await ctx.ask(request(at))
    text = await metrics_text(ctx)
    grown = len(series(text)) - before
    hits = [line for line in text.splitlines() if tag in line.lower()]
    check(not hits, f"{len(hits)} series with invented labels, such as {next(iter(hits), '')[:120]}")
    check(grown <= 60, f"{grown} more series after 80 {ctx.variant.option}")
    return f"{grown:+d} series after 80 invented {ctx.variant.option}, none of them in a label"


@case(
    "N3",
    "P1",
    "A backend that has always been well",
    "It is in the metrics from the start, whether or not anything has happened to it.",
    needs={Capability.METRICS},
    fresh=True,
)
async def present_from_the_start(ctx: Context) -> Evidence:
    """An alert on a gauge that does not exist never fires."""
    text = await metrics_text(ctx)
    missing = [backend.url for backend in ctx.backends if f"127.0.0.1:{backend.port}" not in text]
    check(not missing, f"{len(missing)} of {len(ctx.backends)} backends are in no metric")
    lines = [line for line in text.splitlines() if f"127.0.0.1:{ctx.backends[0].port}" in line]
    return f"all backends are there, each with about {len(lines)} series"


async def _first_token_time(ctx: Context, events: list[tuple[float, bytes]]) -> float:
    """Stream `events` with pauses before each; return by how much the metric of first tokens grew."""
    names = "ttft|first_token"
    before = await _sum_and_count(ctx, names)

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        for pause, event in events:
            await asyncio.sleep(pause)
            await exchange.chunk(event)
        await exchange.end_stream()

    ctx.script_all(script)
    answer = await ctx.ask()
    check(answer.status == 200, str(answer))
    after = before

    async def counted() -> bool:
        nonlocal after
        after = await _sum_and_count(ctx, names)
        return after[1] > before[1]

    try:
        await ctx.wait_for(counted, "the time to the first token in the metrics", seconds=1.5)
    except CaseFailed:
        if total(await metrics_text(ctx), FIRST_TOKEN) is None:
            raise NotApplicable("the router has no metric of the time to the first token") from None
        raise
    return after[0] - before[0]


def _delta(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(chunk).encode()


@case(
    "N4",
    "P1",
    "Time to the first token",
    "It ends with the first content, not with the first comment or role and not with the last chunk.",
    variants=(Variant(streaming=True),),
    needs={Capability.METRICS},
)
async def time_to_first_token(ctx: Context) -> Evidence:
    """A comment and a role at once, content after 0.3 s, the end after 0.9 s."""
    events = [
        (0.0, b": ping\n\n"),
        (0.0, _delta(role="assistant", content="")),
        (0.3, _delta(content="Hi")),
        (0.6, _delta(content=" there")),
        (0.0, b"data: [DONE]\n\n"),
    ]
    seconds = await _first_token_time(ctx, events)
    check(
        0.28 <= seconds < 0.8, f"{seconds:.2f} s, the first content came after 0.3 s and the last after 0.9"
    )
    return f"{seconds:.2f} s with content after 0.3 s and an end after 0.9 s"


@case(
    "N5",
    "P2",
    "A model that thinks first",
    "The first piece of reasoning, or of a tool call, is a first token as well.",
    variants=tuple(
        Variant(streaming=True, option=option) for option in ("reasoning_content", "reasoning", "tool_calls")
    ),
    needs={Capability.METRICS},
)
async def reasoning_counts(ctx: Context) -> Evidence:
    """Otherwise a minute of visible thinking is booked as silence."""
    call = [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{"}}]
    first = {ctx.variant.option: call if ctx.variant.option == "tool_calls" else "Hmm"}
    events = [(0.1, _delta(**first)), (0.6, _delta(content="42")), (0.0, b"data: [DONE]\n\n")]
    seconds = await _first_token_time(ctx, events)
    check(seconds < 0.5, f"{seconds:.2f} s, the first piece came after 0.1 s")
    return f"{seconds:.2f} s with a first piece after 0.1 s"


@case(
    "N7",
    "P1",
    "Cache hits that the backends report",
    "The router's metrics have them by backend, zero hits included.",
    variants=stream_and_whole(),
    needs={Capability.METRICS},
)
async def observed_hits(ctx: Context) -> Evidence:
    """One backend reports hits, the others none: a cache that is off must show."""

    async def script(exchange: Exchange) -> None:
        cached = 60 if exchange in ctx.backends[0].exchanges else 0
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}  # type: ignore[dict-item]
        if exchange.wants_stream:
            await exchange.start_stream()
            await exchange.chunk(_delta(content="x"))
            tail = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
            await exchange.chunk(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(tail).encode())
            await exchange.end_stream()
        else:
            document = {**json.loads(Endpoint.CHAT.answer()), "usage": usage}
            await exchange.respond(200, json.dumps(document).encode())

    before = await metrics_text(ctx)
    ctx.script_all(script)
    for _ in range(60):
        await ctx.ask(ctx.request(ctx.unique()))
        if all(backend.exchanges for backend in ctx.backends[:2]):
            break
    after = await metrics_text(ctx)

    def grown(backend: int, names: str) -> float | None:
        label = f"127.0.0.1:{ctx.backends[backend].port}"
        now = total(after, names, label)
        return None if now is None else now - (total(before, names, label) or 0.0)

    hits = grown(0, "cached_tokens")
    if hits is None and grown(0, "cache_hit|hit_rate") is not None:
        return "the router has a rate of cache hits for each backend (its value is not looked at)"
    if hits is None:
        raise NotApplicable("the router has no metric of the backends' cache hits")
    wanted = 60.0 * len(ctx.backends[0].exchanges)
    check(hits == wanted, f"{hits:g} cached tokens counted, {wanted:g} were reported")
    none = grown(1, "cached_tokens")
    check(none == 0.0, f"a backend without hits has {none}")
    return f"{hits:g} cached tokens for one backend, 0 for another"


@case(
    "N8",
    "P1",
    "What is written to the log",
    "No prompt and no credential, whatever happens to a request; and no line for each request by default.",
    variants=stream_and_whole(),
    profile=Profile(request_failures=1000),
    needs={Capability.FRESH},
    disturbs=True,
    fresh=True,
)
async def nothing_private_in_the_log(ctx: Context) -> Evidence:
    """Success, errors of the backend, broken bodies, broken framing, unknown models, a reset."""
    headers = [("Authorization", f"Bearer {SECRET}-key"), ("X-Api-Key", f"{SECRET}-api")]
    path = ctx.endpoint.path

    async def send(*bodies: bytes) -> None:
        for body in bodies:
            try:
                await ctx.ask(request_bytes(path, body, headers=headers), seconds=3)
            except CaseFailed:
                continue

    body = ctx.endpoint.request(f"{SECRET}-prompt", stream=ctx.streaming)
    for script in (answering(500, b"no"), answering(400, body), answering(503, b"{}"), resetting):
        ctx.script_all(script)
        await send(body)
    ctx.script_all(answering(200, ctx.endpoint.answer()))
    await send(
        body[:-5],
        body.replace(MODEL.encode(), b"a-model-that-nobody-serves"),
        b"\xff" + body,
        b"[" * 50_000 + body,
    )
    with_length = request_bytes(f"{path}?key={SECRET}-query", body, headers=headers)
    broken = with_length.replace(b"Content-Length: ", b"Content-Length: x")
    for data in (with_length, broken, b"NOT HTTP " + SECRET.encode() + b"\r\n\r\n"):
        try:
            await ctx.ask(data, seconds=2)
        except CaseFailed:
            continue
    before = len(_log(ctx).splitlines())
    for _ in range(40):
        await ctx.ask(ctx.request(f"{ctx.unique()} {SECRET}-prompt"))
    log = _log(ctx)
    found = [line for line in log.splitlines() if SECRET in line]
    check(not found, f"{len(found)} lines with what clients sent, such as {next(iter(found), '')[:160]}")
    lines = len(log.splitlines()) - before
    check(lines < 20, f"{lines} lines for 40 plain requests")
    return f"{len(log.splitlines())} lines, none with prompt or key; {lines} for 40 plain requests"


def _log(ctx: Context) -> str:
    if ctx.router.folder is None:
        raise NotApplicable("the suite does not see the router's log")
    return (ctx.router.folder / "log").read_text(encoding="utf-8", errors="replace")
