"""Section D: headers, in both directions."""

from __future__ import annotations

import asyncio
import json

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange, head_bytes
from conformance.model import Capability, Evidence, NotApplicable, Variant, check
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import answering, sending, streaming, whole_bytes
from conformance.wire import request_bytes

ADDED_BY_PROXIES = frozenset(
    {
        "host",
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-real-ip",
        "x-request-id",
        "x-correlation-id",
        "traceparent",
        "tracestate",
        "content-length",
        "transfer-encoding",
        "content-type",
        "connection",
        "user-agent",
        "accept",
    }
)
"""Request headers that a proxy may add or write anew without anybody being misled."""

BOUNDARY = "----conformance7MA4YWxk"

MULTIPART = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\nconformance-model\r\n'
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    "Content-Type: audio/wav\r\n\r\nRIFF\0\xff\xfe\r\n\r\n"
    f"--{BOUNDARY}--\r\n"
).encode("latin-1")

_MODEL = {"model": "conformance-model"}

OTHER_ROUTES: dict[str, tuple[bytes, str]] = {
    "/v1/audio/transcriptions": (MULTIPART, f"multipart/form-data; boundary={BOUNDARY}"),
    "/v1/audio/translations": (MULTIPART, f"multipart/form-data; boundary={BOUNDARY}"),
    "/v1/audio/speech": (json.dumps(_MODEL | {"input": "hi", "voice": "a"}).encode(), "application/json"),
    "/v1/score": (json.dumps(_MODEL | {"text_1": "a", "text_2": "b"}).encode(), "application/json"),
    "/v1/rerank": (json.dumps(_MODEL | {"query": "a", "documents": ["b"]}).encode(), "application/json"),
    "/pooling": (json.dumps(_MODEL | {"input": "a"}).encode(), "application/json"),
    "/classify": (json.dumps(_MODEL | {"input": "a"}).encode(), "application/json"),
    "/tokenize": (json.dumps(_MODEL | {"prompt": "a"}).encode(), "application/json"),
}
"""vLLM's other routes: path -> a body and its content type."""


def _only_exchange(ctx: Context) -> Exchange:
    backend = ctx.served_by()
    check(len(backend.exchanges) == 1, f"sent {len(backend.exchanges)} times")
    return backend.exchanges[0]


@case(
    "D1",
    "P0",
    "The client's Host",
    "The backend gets its own authority as Host, exactly once.",
    variants=every_kind(),
)
async def host_of_the_backend(ctx: Context) -> Evidence:
    """An ingress in front of a backend routes by Host."""
    body = ctx.endpoint.request(stream=ctx.streaming)
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, body, host="router.example"))
    check(answer.status == 200, str(answer))
    backend = ctx.served_by()
    hosts = _only_exchange(ctx).values("host")
    check(hosts == [f"127.0.0.1:{backend.port}"], f"Host {hosts}")
    return "Host is the backend's own"


@case(
    "D2",
    "P0",
    "Headers that belong to one hop",
    "RFC 9110 hop-by-hop headers end at the router in both directions, with what Connection names.",
    variants=every_kind("request", "response"),
)
async def hop_by_hop(ctx: Context) -> Evidence:
    """An end-to-end header stands next to them; losing that is the matter of D14."""
    hop = [
        ("Connection", "keep-alive, X-Only-Here"),
        ("X-Only-Here", "1"),
        ("Keep-Alive", "timeout=60"),
        ("Proxy-Connection", "keep-alive"),
        ("X-End-To-End", "stays"),
    ]
    if ctx.variant.option == "request":
        answer = await ctx.ask(ctx.request(headers=[*hop, ("TE", "trailers")]))
        check(answer.status == 200, str(answer))
        exchange = _only_exchange(ctx)
        names = {name.lower() for name, _ in exchange.head.headers}
        connection = ",".join(exchange.values("connection")).lower()
        kept = exchange.get("x-end-to-end")
    else:
        if ctx.streaming:
            ctx.script_all(streaming(ctx.endpoint.events(), hop))
        else:
            ctx.script_all(answering(200, ctx.endpoint.answer(), hop))
        answer = await ctx.ask()
        check(answer.status == 200, str(answer))
        names = {name.lower() for name, _ in answer.head.headers}
        connection = ",".join(answer.values("connection")).lower()
        kept = answer.get("x-end-to-end")
    left = names & {"x-only-here", "proxy-connection", "te"}
    if ctx.variant.option == "request":
        left |= names & {"keep-alive"}
    elif "timeout=60" in ",".join(answer.values("keep-alive")):
        left.add("keep-alive")
    check(not left, f"passed on: {', '.join(sorted(left))}")
    check("x-only-here" not in connection, f"Connection: {connection}")
    neighbour = "stayed" if kept == "stays" else "was lost too (see D14)"
    return f"removed; the end-to-end header next to them {neighbour}"


@case(
    "D4",
    "P1",
    "The backend sends Server and Date",
    "The client gets exactly one of each.",
    variants=every_kind(),
)
async def one_server_and_date(ctx: Context) -> Evidence:
    """Two of them confuse caches and clients that join repeated headers."""
    own = [("Server", "uvicorn"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT")]
    if ctx.streaming:
        ctx.script_all(streaming(ctx.endpoint.events(), own))
    else:
        ctx.script_all(answering(200, ctx.endpoint.answer(), own))
    answer = await ctx.ask()
    seen = {name: answer.values(name) for name in ("server", "date")}
    check(all(len(values) == 1 for values in seen.values()), f"got {seen}")
    return "one Server, one Date"


@case(
    "D5",
    "P0",
    "Length of a body",
    "Content-Length says what the body has, in both directions, whether the router writes it anew or not.",
    variants=every_kind(streaming=False),
)
async def lengths_agree(ctx: Context) -> Evidence:
    """Odd spacing and escapes in both bodies: a router that writes JSON anew changes the length."""
    document = json.loads(ctx.endpoint.request("caf\u00e9 \U0001f600"))
    odd = json.dumps(document, indent=3, ensure_ascii=False, separators=(" ,", " :  ")).encode() + b"\n "
    reply = b'{ "id":"x" ,\n\t"text" : "\\u00e9\xc3\xa9",  "b":1.0e+2, "a": null }\n'
    ctx.script_all(answering(200, reply))
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, odd))
    exchange = _only_exchange(ctx)
    what = []
    for side, message, body, original in (
        ("request", exchange.head, exchange.body, odd),
        ("response", answer.head, answer.body, reply),
    ):
        lengths = message.values("content-length")
        check(lengths in ([], [str(len(body))]), f"{side}: Content-Length {lengths} with {len(body)} bytes")
        check(_covers(body, original), f"{side}: cut or changed: {body[:200]!r}")
        what.append(f"{side} {'identical' if body == original else 'written anew'}")
    return f"{', '.join(what)}; both lengths right"


def _covers(body: bytes, original: bytes) -> bool:
    """Whether `body` is whole JSON and has all fields of `original`; fields that were added are no matter."""
    try:
        found, wanted = json.loads(body), json.loads(original)
    except ValueError:
        return False
    return all(name in found and found[name] == value for name, value in wanted.items())


@case(
    "D6",
    "P0",
    "A chunked request",
    "It is accepted, and the backend gets one framing, never both.",
    variants=every_kind(),
)
async def chunked_request(ctx: Context) -> Evidence:
    """Chunks of one byte, of seven, and the rest."""
    body = ctx.endpoint.request(stream=ctx.streaming)
    pieces = [body[:1], body[1:8], body[8:]]
    head = [("Content-Type", "application/json")]
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, body, headers=head, chunks=pieces))
    check(answer.status == 200 and answer.complete, str(answer))
    exchange = _only_exchange(ctx)
    check(_covers(exchange.body, body), f"the backend got {exchange.body!r}")
    lengths, codings = exchange.values("content-length"), exchange.values("transfer-encoding")
    check(len(lengths) + len(codings) == 1, f"Content-Length {lengths}, Transfer-Encoding {codings}")
    return "accepted; one framing at the backend"


@case(
    "D8",
    "P0",
    "A response that comes in pieces",
    "All of it arrives, framed by a length that is right or by chunks, never by both.",
    variants=every_kind("chunked", "length", "until close"),
)
async def one_framing(ctx: Context) -> Evidence:
    """The three framings that HTTP/1.1 has for a response."""
    pieces = ctx.endpoint.events() if ctx.streaming else [b'{"a": "', b"x" * 1000, b'"}']
    kind = "text/event-stream" if ctx.streaming else "application/json"
    whole = b"".join(pieces)

    async def script(exchange: Exchange) -> None:
        if ctx.variant.option == "chunked":
            await streaming(pieces, content_type=kind, gap_seconds=0.01)(exchange)
            return
        length = [("Content-Length", str(len(whole)))] if ctx.variant.option == "length" else []
        last = [("Connection", "close")] if ctx.variant.option == "until close" else []
        await exchange.raw(head_bytes(200, [("Content-Type", kind), *length, *last]))
        for piece in pieces:
            await exchange.raw(piece)
            await asyncio.sleep(0.01)
        if last:
            exchange.close()

    ctx.script_all(script)
    answer = await ctx.ask()
    check(answer.status == 200 and answer.complete and answer.body == whole, str(answer))
    lengths = answer.values("content-length")
    check(not (lengths and answer.head.chunked), "both a length and chunks")
    check(len(lengths) <= 1, f"Content-Length {lengths}")
    return "whole, with one framing"


def _echoed_kinds() -> tuple[Variant, ...]:
    return every_kind() + tuple(Variant(option=path) for path in OTHER_ROUTES)


@case(
    "D9",
    "P0",
    "Authorization on every route",
    "Authorization and other end-to-end headers reach the backend on each route that the router has.",
    variants=_echoed_kinds(),
)
async def authorization_everywhere(ctx: Context) -> Evidence:
    """Routes with their own handling (audio, multipart) are where it gets lost."""
    sent = [("Authorization", "Bearer sk-abc.DEF_123=="), ("X-Tenant", "t1"), ("OpenAI-Organization", "o1")]
    path = ctx.variant.option or ctx.endpoint.path
    if ctx.variant.option:
        body, kind = OTHER_ROUTES[path]
        answer = await ctx.ask(request_bytes(path, body, headers=[("Content-Type", kind), *sent]))
        if not ctx.work_count:
            raise NotApplicable(f"the router does not carry {path}: {answer.status}")
    else:
        answer = await ctx.ask(ctx.request(headers=sent))
        check(answer.status == 200, str(answer))
    exchange = _only_exchange(ctx)
    lost = [name for name, value in sent if exchange.values(name) != [value]]
    check(not lost, f"{path}: lost or changed {lost}")
    return f"all {len(sent)} arrived unchanged"


@case(
    "D10",
    "P1",
    "A malformed Authorization header",
    "It is passed on or refused with 4xx; never a 5xx, never a dead connection.",
    variants=tuple(
        Variant(endpoint, option=option)
        for endpoint in (Endpoint.CHAT, Endpoint.MESSAGES)
        for option in ("empty", "bearer alone", "no scheme", "bytes", "long", "twice")
    ),
)
async def malformed_authorization(ctx: Context) -> Evidence:
    """Values that parsers of credentials trip over."""
    values = {
        "empty": [""],
        "bearer alone": ["Bearer"],
        "no scheme": ["%%%:==:\t"],
        "bytes": ["Bearer \xff\xfe\x80"],
        "long": ["Bearer " + "a" * 7000],
        "twice": ["Bearer a", "Basic b"],
    }[ctx.variant.option]
    answer = await ctx.ask(ctx.request(headers=[("Authorization", value) for value in values]))
    check(answer.status == 200 or 400 <= answer.status < 500, str(answer))
    return f"{answer.status}"


@case(
    "D12",
    "P1",
    "Where did my request go?",
    "The response names the backend and why it was chosen.",
    variants=every_kind(),
    needs={Capability.DECISION_HEADERS},
)
async def decision_headers(ctx: Context) -> Evidence:
    """Equal on equal requests, and right."""
    answer = await ctx.ask()
    backend = ctx.served_by()
    named = answer.get("x-prefix-router-backend")
    reason = answer.get("x-prefix-router-reason")
    check(named == f"127.0.0.1:{backend.port}", f"named {named}, served by port {backend.port}")
    check(reason, "no reason")
    return f"named the backend that served; reason {reason}"


@case(
    "D14",
    "P1",
    "Round trip of headers",
    "The backend gets exactly the end-to-end headers of the client, the client exactly those of the backend.",
    variants=every_kind(),
)
async def round_trip(ctx: Context) -> Evidence:
    """Repeats, empty values, commas, bytes above 127, and odd but legal names."""
    sent = [
        ("X-Repeat", "1"),
        ("X-Repeat", "2, 3"),
        ("X-Empty", ""),
        ("x-lower", 'quoted "text"; q=0.5'),
        ("X_Under.Score!", "odd but legal"),
        ("X-Latin", "caf\xe9"),
        ("Cookie", "a=1; b=2"),
        ("User-Agent", "conformance/1"),
        ("Accept", "application/json, text/event-stream;q=0.9"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("OpenAI-Beta", "assistants=v2"),
        ("anthropic-version", "2023-06-01"),
    ]
    back = [
        ("X-Repeat", "b1"),
        ("X-Repeat", "b2"),
        ("X-Empty", ""),
        ("Set-Cookie", "a=1; Path=/"),
        ("Set-Cookie", "b=2; HttpOnly"),
        ("openai-processing-ms", "12"),
        ("Cache-Control", "no-cache"),
        ("X-Latin", "caf\xe9"),
    ]
    if ctx.streaming:
        ctx.script_all(streaming(ctx.endpoint.events(), back))
    else:
        ctx.script_all(answering(200, ctx.endpoint.answer(), back))
    answer = await ctx.ask(ctx.request(headers=sent))
    check(answer.status == 200, str(answer))
    exchange = _only_exchange(ctx)
    for name in dict.fromkeys(name.lower() for name, _ in sent):
        wanted = [value for key, value in sent if key.lower() == name]
        got = exchange.values(name)
        anew = name == "content-type" and got == ["application/json"]  # of a body that was written anew
        check(anew or got == wanted or got == [", ".join(wanted)], f"request {name}: {got}, sent {wanted}")
    known = {name.lower() for name, _ in sent} | ADDED_BY_PROXIES
    added = sorted({name.lower() for name, _ in exchange.head.headers} - known)
    check(not added, f"added to the request: {added}")
    for name in dict.fromkeys(name.lower() for name, _ in back):
        wanted = [value for key, value in back if key.lower() == name]
        got = answer.values(name)
        joined = name != "set-cookie" and got == [", ".join(wanted)]
        check(joined or got == wanted, f"response {name}: {got}, sent {wanted}")
    return f"{len(sent)} request and {len(back)} response headers arrived, nothing was added"


@case(
    "D16",
    "P2",
    "A backend's Content-Length is off by one",
    "The client cannot take the answer for whole: it is broken off, or it is a 502 that says so.",
    variants=stream_and_whole("one too many", "one too few"),
)
async def wrong_length(ctx: Context) -> Evidence:
    """One byte missing, and one byte left over on a connection that is kept."""
    body = b"".join(ctx.endpoint.events()) if ctx.streaming else ctx.endpoint.answer()
    kind = "text/event-stream" if ctx.streaming else "application/json"
    if ctx.variant.option == "one too many":
        ctx.script_all(sending(whole_bytes(body, kind, len(body) + 1), then="close"))
        answer = await ctx.ask()
        honest = not answer.complete or answer.status == 502 or b"error" in answer.body
        check(honest, f"a truncated answer looks whole: {answer}")
        return f"{answer.status}, {'502 body' if answer.complete else 'broken off'}"
    ctx.script_all(sending(whole_bytes(body, kind, len(body) - 1)))
    first = await ctx.ask()
    check(first.body == body[:-1] or first.status == 502, str(first))
    ctx.script_all(answering(200, b'{"second": 1}'))
    second = await ctx.ask()
    check(second.status == 200 and second.body == b'{"second": 1}', f"the byte left over came back: {second}")
    return "the byte left over did not reach the next response"
