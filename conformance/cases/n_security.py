"""Section N, second part: what clients and tenants can see of each other and of the router."""

from __future__ import annotations

import time

from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, Variant, check
from conformance.placing import GROUPS, Placing, expect_same, expect_spread, head
from conformance.registry import case, every_kind
from conformance.scripts import answering
from conformance.sharing import Gate
from conformance.wire import request_bytes

INSIDE = (
    ("GET", "/metrics"),
    ("GET", "/status"),
    ("GET", "/config"),
    ("GET", "/workers"),
    ("GET", "/list_workers"),
    ("GET", "/get_loads"),
    ("POST", "/reload"),
    ("POST", "/explain"),
    ("POST", "/flush_cache"),
    ("POST", "/backends/127.0.0.1/drain"),
    ("POST", "/add_worker?url=http%3A%2F%2F127.0.0.1%3A9"),
)
"""What operators of one router or another use."""


@case(
    "N9",
    "P1",
    "A backend sets a cookie",
    "Only the client that it was for gets it; the router never sends it for anybody.",
    variants=every_kind(),
)
async def cookies_are_the_clients(ctx: Context) -> Evidence:
    """HTTP client libraries keep cookies unless they are told not to."""

    async def script(exchange: Exchange) -> None:
        cookies = [("Set-Cookie", "session=alice; Path=/"), ("Set-Cookie", "b=2")]
        await exchange.respond(200, b"{}", cookies)

    ctx.script_all(script)
    first = await ctx.ask()
    check(first.values("set-cookie") == ["session=alice; Path=/", "b=2"], f"{first.values('set-cookie')}")
    for _ in range(6):
        await ctx.ask(ctx.request(ctx.unique()))
    await ctx.ask(ctx.request(headers=[("Cookie", "own=1")]))
    sent = [exchange for backend in ctx.backends for exchange in backend.exchanges]
    got = [value for exchange in sent for value in exchange.values("cookie")]
    check(got == ["own=1"], f"backends got the cookies {got}, a client sent ['own=1']")
    return "8 requests, backends got only the cookie that a client sent"


@case(
    "N11",
    "P1",
    "Probes without credentials",
    "/health answers 200 without a key, also while the fleet is busy and after many wrong keys.",
    variants=(Variant(option="idle"), Variant(option="busy"), Variant(option="wrong keys")),
)
async def open_probes(ctx: Context) -> Evidence:
    """An orchestrator that gets 401 or no answer restarts a router that is well."""
    gate = Gate()
    if ctx.variant.option == "busy":
        ctx.script_all(gate.script)
        for _ in range(60):
            await ctx.start(ctx.request(ctx.unique()))
    if ctx.variant.option == "wrong keys":
        ctx.script_all(answering(401, b"{}"))
        place = Placing(ctx)
        for _ in range(300):
            headers = [("Authorization", f"Bearer {ctx.unique().strip()}")]
            answer = await place.send(ctx.request(headers=headers))
            check(answer.status == 401, str(answer))
    began = time.monotonic()
    answer = await ctx.ask(request_bytes("/health", method="GET"), seconds=2)
    seconds = time.monotonic() - began
    gate.open()
    check(answer.status == 200, str(answer))
    return f"200 within {seconds:.2f} s"


@case(
    "N12",
    "P2",
    "Operators' paths on the clients' port",
    "Clients without a credential neither see nor change the router: such paths are a backend's, or refused.",
    variants=tuple(Variant(option=f"{method} {path}") for method, path in INSIDE),
)
async def inside_stays_inside(ctx: Context) -> Evidence:
    """With the router's default settings."""
    method, path = ctx.variant.option.split(" ", 1)
    mark = b'{"from": "a backend"}'
    ctx.script_all(answering(200, mark))
    for backend in ctx.backends:
        backend.control.metrics = answering(200, mark)
    answer = await ctx.ask(request_bytes(path, b"{}" if method == "POST" else b"", method=method))
    check(
        answer.body == mark or answer.status in (401, 403, 404, 405, 501),
        f"{method} {path.partition('?')[0]} is answered by the router: {answer}",
    )
    return f"answered by {'a backend' if answer.body == mark else f'a refusal ({answer.status})'}"


@case(
    "N13",
    "P2",
    "Tenants that send the same prompt",
    "An id or salt of the tenant's own keeps them apart: other tenants spread, the same tenant stays.",
    variants=(
        *(Variant(v.endpoint, v.streaming, "cache_salt") for v in every_kind() if v.endpoint.streams),
        Variant(option="X-Prefix-Router-Affinity-Id"),
        Variant(option="X-Amzn-SageMaker-Prefix-Aware-Id"),
    ),
)
async def tenants_apart(ctx: Context) -> Evidence:
    """`cache_salt` is vLLM's field for it: it shares no cache between salts."""
    text = head()
    option = ctx.variant.option

    def request(tenant: str) -> bytes:
        if option == "cache_salt":
            return ctx.request(text, fields={"cache_salt": tenant})
        return ctx.request(text, headers=[(option, tenant)])

    place = Placing(ctx)
    names = [f"tenant-{at}" for at in range(GROUPS)]
    if (refusal := await place.send(request(names[0]))).status == 400 and not ctx.work_count:
        raise NotApplicable(f"the router refuses {option} on {ctx.endpoint.path}: {refusal.body[:80]!r}")
    first = await place.of_all(request(name) for name in names)
    if len(set(first)) == 1:
        raise NotApplicable(f"the router makes no use of {option}")
    again = await place.of_all(request(name) for name in names)
    return f"{expect_spread(ctx, first, 'tenants')}; {expect_same(first, again, 'same tenant')}"
