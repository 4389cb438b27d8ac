"""Section J: IPv6, addresses, URLs."""

from __future__ import annotations

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exposition import metrics_text
from conformance.model import Capability, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, every_kind
from conformance.scripts import answering
from conformance.wire import request_bytes

ON_IPV6 = Profile(listen_host="::1", backend_address="http://[::1]:{port}")


@case(
    "J1",
    "P1",
    "IPv6 on both sides",
    "The router listens on [::1] and reaches backends on [::1].",
    variants=every_kind(),
    profile=ON_IPV6,
)
async def ipv6_both_sides(ctx: Context) -> Evidence:
    """An address joined to a port without brackets is not an address any more."""
    answer = await ctx.ask()
    check(answer.status == 200 and answer.complete, str(answer))
    return f"listens on and dials [::1]; a request came to backend {ctx.served_by().name}"


@case(
    "J2",
    "P1",
    "How an IPv6 backend is written",
    "With brackets, in Host and wherever the router names its backends.",
    variants=(Variant(option="host"), Variant(option="counts"), Variant(option="metrics")),
    profile=ON_IPV6,
)
async def brackets(ctx: Context) -> Evidence:
    """`::1:8000` is an address of its own; only `[::1]:8000` is one with a port."""
    answer = await ctx.ask()
    check(answer.status == 200, str(answer))
    backend = ctx.served_by()
    wanted = f"[::1]:{backend.port}"
    if ctx.variant.option == "host":
        hosts = backend.exchanges[0].values("host")
        check(hosts == [wanted], f"Host {hosts}, wanted {wanted}")
        return "Host has brackets"
    if ctx.variant.option == "counts":
        names = sorted(await ctx.in_flight())
        check(any(wanted in name for name in names), f"backends are called {names}")
        return f"counts are told for {wanted.replace(str(backend.port), 'PORT')}"
    if Capability.METRICS not in ctx.router.launcher.capabilities:
        raise NotApplicable("the router has no metrics")
    text = await metrics_text(ctx)
    named = [line for line in text.splitlines() if f"::1]:{backend.port}" in line]
    bare = [line for line in text.splitlines() if f"::1:{backend.port}" in line]
    check(not bare, f"a label without brackets: {next(iter(bare), '')[:150]}")
    if not named:
        raise NotApplicable("no metric of the router names the backend")
    check(all(wanted in line for line in named), f"a label: {named[0][:150]}")
    return f"{len(named)} series name it with brackets"


@case(
    "J3",
    "P1",
    "Path and query",
    "They reach the backend byte for byte, percent-encoding kept.",
    variants=(*every_kind("query"), Variant(option="path"), Variant(option="GET")),
)
async def target_unchanged(ctx: Context) -> Evidence:
    """What a URL library would normalise: case and choice of escapes, empty parts, `+`, order, repetition."""
    query = "?b=2&a=%2f%2F%7e&c=x+y%20z&&d&e=&a=1&u=%C3%A9&f=[1]"
    if ctx.variant.option == "query":
        path = ctx.endpoint.path
        data = request_bytes(path + query, ctx.endpoint.request(stream=ctx.streaming))
    else:
        path = "/v1/files/a%2Fb%20c/~user/%C3%A9;v=1"
        method = "GET" if ctx.variant.option == "GET" else "POST"
        body = b"" if method == "GET" else b"{}"
        data = request_bytes(path + query, body, method=method)
    answer = await ctx.ask(data)
    if ctx.variant.option != "query" and answer.status in (404, 405, 501) and not ctx.work_count:
        raise NotApplicable("the router carries no paths but those it knows")
    check(answer.status == 200, str(answer))
    got = ctx.served_by().exchanges[0].path
    check(got == path + query, f"sent {path + query}, the backend got {got}")
    return "identical"


@case(
    "J5",
    "P1",
    "The backend answers 404",
    "The client gets that answer as it is, and no other backend is asked.",
    variants=every_kind(),
)
async def not_found(ctx: Context) -> Evidence:
    """404 is how vLLM says that it does not know a model or a route; another replica knows no more."""
    body = b'{"object":"error",  "message":"The model `x` does not exist.", "code":404}'
    ctx.script_all(answering(404, body))
    answer = await ctx.ask()
    check(answer.status == 404 and answer.body == body, str(answer))
    check(ctx.work_count == 1, f"sent {ctx.work_count} times")
    return "passed on, sent once"


@case(
    "J6",
    "P2",
    "Preflight requests and upgrades",
    "OPTIONS is answered by a backend or by the router; an upgrade is proxied or refused, and never hangs.",
    variants=(Variant(option="OPTIONS"), Variant(option="websocket"), Variant(option="h2c")),
)
async def preflight_and_upgrade(ctx: Context) -> Evidence:
    """A refusal must leave the connection in a state that both sides agree on."""
    if ctx.variant.option == "OPTIONS":
        sent = [("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")]
        granted = [("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Methods", "POST")]
        ctx.script_all(answering(204, b"", granted))
        answer = await ctx.ask(request_bytes(Endpoint.CHAT.path, method="OPTIONS", headers=sent))
        check(answer.status in (200, 204), str(answer))
        check(answer.get("access-control-allow-origin"), "no Access-Control-Allow-Origin in the answer")
        return f"{answer.status}, answered by {'a backend' if ctx.work_count else 'the router'}"
    offer = [("Connection", "Upgrade"), ("Upgrade", ctx.variant.option)]
    if ctx.variant.option == "websocket":
        offer += [("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]
        data = request_bytes("/v1/realtime?model=conformance-model", method="GET", headers=offer)
        ctx.script_all(answering(426, b"{}"))
        answer = await ctx.ask(data)
        check(answer.status in (101, 426) or 400 <= answer.status < 600, str(answer))
        return f"answered with {answer.status}"
    answer = await ctx.ask(ctx.request(headers=offer))
    check(answer.status in (200, 400, 426, 501), f"an offer that may be ignored: {answer}")
    return f"the offer of h2c is answered with {answer.status}"
