"""Section G, second part: errors of clients and backends, timeouts, dead backends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

from conformance.cases.g_backpressure import BREAKER, NEVER_OUT
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import MODEL, Endpoint
from conformance.exchange import Exchange
from conformance.launchers.base import fetch
from conformance.model import Capability, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import answering, hanging, streaming_then_hanging, well_behaved
from conformance.service import expect_in_service, together
from conformance.wire import ClosedError, request_bytes

MULTIPART = (
    b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + MODEL.encode() + b"\r\n"
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n" + bytes(range(256)) * 64 + b"\r\n--edge--\r\n"
)


@case(
    "G10",
    "P0",
    "Clients give up",
    "What a client does is never held against a backend: all stay in service.",
    variants=every_kind("before the head", "in the body"),
    profile=BREAKER,
)
async def clients_give_up(ctx: Context) -> Evidence:
    """Twenty-four at once, so that each backend sees more than would take it out."""
    before_head = ctx.variant.option == "before the head"
    ctx.script_all(hanging if before_head else streaming_then_hanging([b"data: {}\n\n"]))
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(24)]
    await ctx.wait_until(lambda: ctx.running_count == 24, "24 requests at the backends")
    if not before_head:
        await asyncio.sleep(0.1)  # a router may hold a whole response back: there is nothing to wait for
    for at, client in enumerate(clients):
        if at % 2:
            client.reset()
        else:
            client.close()
    await ctx.wait_until(lambda: not ctx.running_count, "the backends told")
    await expect_in_service(ctx, within_seconds=0)
    return "24 clients left; all backends in service"


BODIES: dict[str, tuple[bytes, ...]] = {
    "cut": (b"{", b'{"model": "m", "messages": [', b"", b" ", b'{"model": "m"} tail'),
    "not an object": (b"[1]", b'"text"', b"null", b"12", b"true", b"NaN"),
    "wrong types": (
        b'{"model": 5, "messages": 3, "prompt": {}, "input": false}',
        b'{"model": null, "messages": [null, 1, "x", []], "prompt": [null], "input": [[]]}',
        b'{"model": {}, "messages": [{"role": 1, "content": 2}], "prompt": [{}], "input": {"a": 1}}',
        b'{"stream": "yes", "model": ["m"], "messages": {}, "tools": 7}',
    ),
    "deep": (b"[" * 50_000, b'{"messages":' * 20_000, b"[" * 500 + b"]" * 500),
    "not UTF-8": (b"\xff\xfe{}", b'{"model": "\xc3\x28"}', b'{"model": "\\ud800", "prompt": "\\udc00"}'),
}
"""What cannot be an inference request. A backend answers 400, a router may do so by itself."""


@case(
    "G11",
    "P1",
    "A body that is not a JSON object, or one with wrong types",
    "4xx with an error body, from the backend or the router; never 5xx, never a dead connection.",
    variants=every_kind(*BODIES, streaming=False),
)
async def malformed_bodies(ctx: Context) -> Evidence:
    """The connection must stay usable as well."""
    ctx.script_all(answering(400, ctx.endpoint.error(400, "bad request")))
    bodies = BODIES[ctx.variant.option]
    for body in bodies:
        answer = await ctx.ask(request_bytes(ctx.endpoint.path, body))
        check(400 <= answer.status < 500, f"body {body[:40]!r}: {answer}")
        check(
            answer.complete and answer.body.strip(), f"body {body[:40]!r}: an empty answer, {answer.status}"
        )
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    answer = await ctx.ask()
    check(answer.status == 200, f"a good request afterwards: {answer}")
    return f"{len(bodies)} bodies, all 4xx, then 200"


@case(
    "G12",
    "P1",
    "A backend answers with an error",
    "Status, content type and body are the backend's, byte for byte.",
    variants=every_kind("400", "404", "429", "500", "503"),
    profile=NEVER_OUT,
    disturbs=True,
)
async def errors_unchanged(ctx: Context) -> Evidence:
    """All backends answer alike, so that a retry does not hide the answer."""
    status = int(ctx.variant.option)
    body = b" " + ctx.endpoint.error(status, "caf\u00e9 \u2603") + b"\n"
    ctx.script_all(answering(status, body, [("X-Error", "mine")], content_type="application/problem+json"))
    answer = await ctx.ask(ctx.request(ctx.unique()))
    check(answer.status == status, str(answer))
    check(answer.body == body, f"another body: {answer}")
    check(answer.get("content-type") == "application/problem+json", f"type {answer.get('content-type')}")
    check(answer.get("x-error") == "mine", "a header of the error is gone")
    return "status, headers and body as sent"


@case(
    "G14",
    "P1",
    "Over the limit, or nobody there",
    "429 at the router's own limit, 503 when no backend is there; JSON that says why, Retry-After.",
    variants=stream_and_whole("limit", "nobody"),
    profile=Profile(max_in_flight=1, queue_length=1, queue_timeout_seconds=10, health_interval_seconds=0.2),
    needs={Capability.QUEUE},
    disturbs=True,
)
async def limit_or_nobody(ctx: Context) -> Evidence:
    """One request runs, one waits, the next ones are refused."""
    if ctx.variant.option == "limit":
        wanted = 429
        ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
        held = await ctx.start(ctx.request(ctx.unique()))
        await ctx.wait_until(lambda: ctx.running_count == 1, "a request at a backend")
        waiting = await ctx.start(ctx.request(ctx.unique()))
        await asyncio.sleep(0.1)
        answer = await ctx.ask(ctx.request(ctx.unique()))
        held.close()
        waiting.close()
    else:
        wanted = 503
        for backend in ctx.backends:
            await backend.refuse()
        for _ in range(3):
            await ctx.ask(ctx.request(ctx.unique()))
        answer = await ctx.ask(ctx.request(ctx.unique()))
    check(answer.status == wanted, str(answer))
    check(answer.get("retry-after"), f"no Retry-After with {answer}")
    with contextlib.suppress(ValueError):
        document = answer.json()
        check(isinstance(document, dict) and document.get("error"), f"no error object: {answer}")
        return f"{wanted} with Retry-After and an error object"
    check(False, f"not JSON: {answer}")
    return ""


@contextlib.contextmanager
def black_hole(port: int) -> Iterator[None]:
    """Hold a port so that connections to it neither come about nor are refused.

    A listener that accepts nothing, with its queue full: the kernel drops what comes then.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield


@case(
    "G15",
    "P0",
    "A backend is a black hole: connections to it never come about",
    "With the router's own settings its requests are answered by others, within 8 s.",
    disturbs=True,
)
async def black_holed(ctx: Context) -> Evidence:
    """Twelve different requests at once; about a third of them has its home there."""
    victim = ctx.backends[0]
    await victim.refuse()
    with black_hole(victim.port):
        began = time.monotonic()
        clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(12)]
        answers = await together(*(ctx.answer(client) for client in clients))
        seconds = time.monotonic() - began
    bad = [answer for answer in answers if answer.status != 200]
    check(not bad, f"{len(bad)} of 12 failed: {next(iter(bad), '')}")
    return f"12 of 12 answered with 200, the slowest within {seconds:.1f} s"


TIMEOUTS = (
    *(Variant(endpoint, option="first byte") for endpoint in Endpoint),
    Variant(streaming=True, option="first byte"),
    *(Variant(endpoint, streaming=True, option="idle") for endpoint in Endpoint if endpoint.streams),
    Variant(option="idle"),
    Variant(option="silent"),
)


@case(
    "G15b",
    "P0",
    "A backend takes a request and then nothing more comes",
    "Timeouts for the first byte and between bytes can be set, and hold: 504, or the response breaks off.",
    variants=TIMEOUTS,
    profile=Profile(
        first_byte_timeout_seconds=0.3,
        idle_timeout_seconds=0.3,
        request_failures=1000,
        probe_failures=100,
    ),
    disturbs=True,
)
async def timeouts_hold(ctx: Context) -> Evidence:
    """The backend must be told as well: its connection is closed. A silent one does not even read."""
    option = ctx.variant.option
    content_type = "text/event-stream" if ctx.streaming else "application/json"
    if option == "silent":
        for backend in ctx.backends:
            backend.silent = True
            for connection in list(backend.connections):
                connection.abort()
    idle = streaming_then_hanging([b"data: {}\n\n"], content_type=content_type)
    ctx.script_all(idle if option == "idle" else hanging)
    began = time.monotonic()
    answer = await ctx.ask(ctx.request(ctx.unique()), seconds=4)
    seconds = time.monotonic() - began
    if option == "idle":
        check(not answer.complete or b"error" in answer.body, f"ends like a whole one: {answer}")
    else:
        check(answer.status == 504, str(answer))
    check(0.25 < seconds < 2, f"after {seconds:.2f} s with a timeout of 0.3 s")
    await ctx.wait_until(lambda: not ctx.running_count, "the backend told", seconds=1)
    return f"{'broken off' if option == 'idle' else '504'} soon after 0.3 s"


@case(
    "G16",
    "P0",
    "A backend is dead, the others live",
    "No client notices: all requests are answered with 200.",
    variants=(
        *(Variant(endpoint, option="refused") for endpoint in Endpoint),
        *(Variant(endpoint, streaming=True, option="refused") for endpoint in Endpoint if endpoint.streams),
        Variant(option="all but one"),
        Variant(streaming=True, option="all but one"),
    ),
    profile=Profile(health_interval_seconds=0.2, retries_per_second=1000),
    disturbs=True,
)
async def dead_backend(ctx: Context) -> Evidence:
    """Different prompts, sent as the backend dies and before anybody can know."""
    count = len(ctx.backends) - 1 if ctx.variant.option == "all but one" else 1
    dead = ctx.backends[:count]
    for backend in dead:
        await backend.refuse()
    answers = [await ctx.ask(ctx.request(ctx.unique())) for _ in range(12)]
    bad = [answer for answer in answers if answer.status != 200 or not answer.complete]
    check(not bad, f"{len(bad)} of 12 failed: {next(iter(bad), '')}")
    return f"{count} of {len(ctx.backends)} dead, 12 requests, all 200"


@case(
    "G18",
    "P2",
    "A backend breaks off after it has read an upload",
    "The request is sent again whole, or not at all.",
    variants=(Variant(option="multipart"), Variant(option="multipart in chunks"), Variant(option="unknown")),
    profile=NEVER_OUT,
    disturbs=True,
)
async def upload_again(ctx: Context) -> Evidence:
    """What is not inference may have done something already: it must not be done twice."""
    unknown = ctx.variant.option == "unknown"
    path = "/v1/load_lora_adapter" if unknown else "/v1/audio/transcriptions"
    body = b'{"lora_name": "a", "lora_path": "/a"}' if unknown else MULTIPART
    kind = "application/json" if unknown else "multipart/form-data; boundary=edge"
    chunks = [body[:5000], body[5000:]] if ctx.variant.option == "multipart in chunks" else None
    data = request_bytes(path, body, headers=[("Content-Type", kind)], chunks=chunks)
    before = await ctx.ask(data)
    if not ctx.work_count:
        raise NotApplicable(f"the router does not carry {path} to a backend ({before.status})")
    whole = ctx.served_by().exchanges[0].body
    for backend in ctx.backends:
        backend.exchanges.clear()

    async def read_and_reset(exchange: Exchange) -> None:
        await exchange.read_body()
        await asyncio.sleep(1.1 if exchange.reused else 0)  # or it looks like a connection that was closing
        exchange.reset()

    ctx.script_all(read_and_reset)
    answer = await ctx.ask(data)
    check(answer.status >= 500, str(answer))
    got = [exchange.body for backend in ctx.backends for exchange in backend.exchanges]
    check(got, "no backend got the request")
    check(all(each == whole for each in got), f"{len(got)} tries, not all of them whole")
    if unknown:
        check(len(got) == 1, f"sent {len(got)} times")
    return f"{len(got)} tries, each whole"


@case(
    "G19",
    "P1",
    "Engines with a short queue refuse what they cannot take",
    "A home that refuses is overflowed: with room elsewhere every request is answered with 200.",
    variants=(*every_kind("503"), *stream_and_whole("429")),
    profile=BREAKER,
    disturbs=True,
)
async def short_queues(ctx: Context) -> Evidence:
    """Six requests with one prompt; each backend takes three at a time and refuses the fourth at once."""
    status = int(ctx.variant.option)

    async def limited(exchange: Exchange) -> None:
        backend = exchange.connection.backend
        if len(backend.running) > 3:
            await exchange.respond(status, ctx.endpoint.error(status, "queue full"))
            return
        await asyncio.sleep(0.05)
        await well_behaved(backend)(exchange)

    ctx.script_all(limited)
    prompt = ctx.unique()
    for _ in range(2):
        clients: list[ClientConnection] = [await ctx.start(ctx.request(prompt)) for _ in range(6)]
        answers = [await ctx.answer(client) for client in clients]
        bad = [answer for answer in answers if answer.status != 200]
        check(not bad, f"{len(bad)} of 6 failed with room for 9: {next(iter(bad), '')}")
    await expect_in_service(ctx, within_seconds=0)
    return "twice 6 at once with room for 3 at each of 3 backends: all 200"


@case(
    "G20",
    "P2",
    "Backends make up error codes",
    "They do not become labels of metrics, and odd statuses pass.",
    profile=NEVER_OUT,
    needs={Capability.METRICS},
    disturbs=True,
)
async def made_up_codes(ctx: Context) -> Evidence:
    """Thirty codes and types, and statuses that nobody has registered."""

    async def script(exchange: Exchange) -> None:
        at = len(exchange.connection.backend.exchanges)
        error = f'{{"error": {{"message": "m", "type": "madeup{at}", "code": "madeup{at}"}}}}'
        await exchange.respond(430 + at % 20 if at % 2 else 560 + at % 20, error.encode())

    ctx.script_all(script)
    for _ in range(30):
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(430 <= answer.status < 580, str(answer))
    text = (await _metrics(ctx)).decode("utf-8", "replace")
    check("# TYPE" in text, f"not metrics: {text[:80]}")
    check("madeup" not in text, "a code of a backend is in the metrics")
    statuses = [status for status in range(430, 580) if f'"{status}"' in text]
    check(len(statuses) <= 20, f"{len(statuses)} statuses are labels")
    return f"30 made-up codes, none in the metrics, {len(statuses)} statuses as labels"


@case(
    "G20b",
    "P2",
    "An error with a body without end, and a client that does not read",
    "The backend is held back; the router does not collect the body.",
    variants=stream_and_whole("400", "500"),
    profile=NEVER_OUT,
    disturbs=True,
)
async def endless_error(ctx: Context) -> Evidence:
    """Kernel buffers take some megabytes."""
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start_stream(status=int(ctx.variant.option), content_type="application/json")
        with contextlib.suppress(ClosedError):
            while True:
                await exchange.chunk(b" " * 65536)
                sent += 65536
                if sent > 64 << 20:
                    return

    ctx.script_all(script)
    client = await ctx.start(receive_buffer_bytes=4096)
    client.stop_reading()
    last = -1
    while sent != last and sent <= 64 << 20:
        last = sent
        await asyncio.sleep(0.25)
    check(0 < sent < 32 << 20, f"the router took {sent / 2**20:.0f} MiB that nobody reads")
    client.close()
    await ctx.wait_until(lambda: not ctx.running_count, "the backend told")
    return "held back after less than 32 MiB"


async def _metrics(ctx: Context) -> bytes:
    router = ctx.router
    if router.admin_port is not None or router.metrics_port is None:
        return (await router.admin("/metrics")).body
    return (await fetch(router.host, router.metrics_port, "/metrics")).body
