"""Section F: server-sent events, and streams in general, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from conformance.cases.d_headers import OTHER_ROUTES
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange, head_bytes
from conformance.model import Capability, CaseFailed, Evidence, NotApplicable, Variant, check
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import answering, sending, stream_bytes, streaming
from conformance.wire import Answer, chunk_bytes, request_bytes

STREAMS = every_kind(streaming=True)
BINARY = bytes(range(256)) * 400


def _expect_same(answer: Answer, body: bytes) -> None:
    check(answer.status == 200 and answer.complete, str(answer))
    if answer.body != body:
        at = next((n for n, (a, b) in enumerate(zip(answer.body, body, strict=False)) if a != b), -1)
        raise_at = f"first difference at byte {at}" if at >= 0 else "one is the beginning of the other"
        check(False, f"{len(answer.body)} bytes instead of {len(body)}; {raise_at}")


@case(
    "F1",
    "P0",
    "A stream cut at any byte",
    "Wherever TCP or chunks cut the stream, the client gets the same bytes.",
    variants=(
        *(Variant(variant.endpoint, streaming=True, option="chunks") for variant in STREAMS),
        Variant(streaming=True, option="wire"),
    ),
    timeout_seconds=90,
)
async def cut_anywhere(ctx: Context) -> Evidence:
    """Every offset: of the events as two chunks, and of the raw response, its head included."""
    events = ctx.endpoint.events("a b")
    body = b"".join(events)
    wire = stream_bytes(events)
    size = len(body) if ctx.variant.option == "chunks" else len(wire)

    async def script(exchange: Exchange) -> None:
        at = int(exchange.body.partition(b"cut-at-")[2].partition(b"-")[0] or 1)
        if ctx.variant.option == "chunks":
            await streaming([body[:at], body[at:]], gap_seconds=0.002)(exchange)
        else:
            await sending(wire, pieces=(at,))(exchange)

    ctx.script_all(script)
    offsets = iter(range(1, size))

    async def worker() -> None:
        connection = await ctx.connect()
        for at in offsets:
            if connection.inbox.ended:
                connection = await ctx.connect()
            await connection.send(ctx.request(f"cut-at-{at}-"))
            answer = await ctx.answer(connection)
            if answer.body != body or not answer.complete:
                check(False, f"cut at {at}: {len(answer.body)} of {len(body)} bytes, {answer.status}")

    await asyncio.gather(*(worker() for _ in range(16)))
    return f"identical at each of {size - 1} offsets"


@case(
    "F2",
    "P0",
    "The text says [DONE]",
    "Only the stream's own end ends it: what follows arrives, and the backend counts as busy until then.",
    variants=STREAMS,
)
async def done_inside_the_text(ctx: Context) -> Evidence:
    """In a string, at the start of a line of a multi-line event, and after the real mark."""
    go_on = asyncio.Event()
    tricky = json.dumps({"choices": [{"index": 0, "delta": {"content": "data: [DONE]\n\ndata: [DONE]"}}]})
    first = [
        b"data: %b\n\n" % tricky.encode(),
        b'data: {"text":\ndata: "[DONE]"}\n\n',
        b"data: [DONE]\n\n",
    ]
    last = [b'data: {"late": true}\n\n', b": bye\n\n"]

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        for event in first:
            await exchange.chunk(event)
        await go_on.wait()
        for event in last:
            await exchange.chunk(event)
        await exchange.end_stream()

    ctx.script_all(script)
    client = await ctx.start()
    await ctx.wait_until(
        lambda: client.inbox.buffer.count(b"[DONE]") >= 4, "events before the pause", seconds=3
    )
    counts = await ctx.router.in_flight()
    if counts is not None:
        check(sum(counts.values()) == 1, f"counts {sorted(counts.values())} while the stream is open")
    go_on.set()
    _expect_same(await ctx.answer(client), b"".join(first + last))
    return "all bytes arrived; the backend counted as busy to the end"


@case(
    "F3",
    "P1",
    "All that the event-stream grammar allows",
    "No space after the colon, CRLF, CR, comments, several data lines, ids, a byte order mark: unchanged.",
    variants=STREAMS,
)
async def whole_grammar(ctx: Context) -> Evidence:
    """Also fields that nobody knows and an event without an end."""
    chunks = [
        b"\xef\xbb\xbfdata:{}\n\n",
        b'data:{"a":1}\r\n\r\n',
        b": comment\n\n:\n\n",
        b"id: 7\nevent: message\nretry: 10\ndata: 1\ndata: 2\n\n",
        b"data\rdata: x\r\r",
        b"unknown: field\nnocolon\n\n",
        b"data: \xc3\xa9 \xff\n\n",
        *ctx.endpoint.events(),
        b"data: no end",
    ]
    ctx.script_all(streaming(chunks))
    _expect_same(await ctx.ask(), b"".join(chunks))
    return f"{len(chunks)} oddities unchanged"


TRUNCATIONS = ("no last chunk", "short of its length", "reset", "inside a chunk")


async def _truncated(ctx: Context, sent: bytes, how: str) -> Answer | None:
    """Ask for a response that breaks off after `sent`; None when the client got not even a head."""
    kind = "text/event-stream" if ctx.streaming else "application/json"
    head = [("Content-Type", kind), ("Transfer-Encoding", "chunked")]
    if how == "short of its length":
        head[1] = ("Content-Length", str(len(sent) + 100))
        data = head_bytes(200, head) + sent
    else:
        data = head_bytes(200, head) + chunk_bytes(sent)
        if how == "inside a chunk":
            data += b"40\r\n" + b"{"
    ctx.script_all(sending(data, pieces=(len(data) - 1,), then="reset" if how == "reset" else "close"))
    return await ctx.try_answer()


@case(
    "F5",
    "P1",
    "A backend's response breaks off",
    "The client can tell: its response breaks off as well, or ends with an error event of its protocol.",
    variants=every_kind(*TRUNCATIONS),
    disturbs=True,
)
async def truncation_shows(ctx: Context) -> Evidence:
    """Never a well-framed end after a part of the body."""
    sent = ctx.endpoint.events()[0] if ctx.streaming else b'{"half": '
    answer = await _truncated(ctx, sent, ctx.variant.option)
    if answer is None or not answer.complete:
        return "broken off"
    if answer.status >= 500:
        return f"{answer.status}"
    extra = answer.body.removeprefix(sent)
    check(b"error" in extra or b"response.failed" in extra, f"a cut response looks whole: {answer}")
    return "ends with an error event"


@case(
    "F6",
    "P1",
    "An error event made up by the router",
    "If there is one, it is of the endpoint's protocol; nothing else is made up.",
    variants=STREAMS,
    disturbs=True,
)
async def made_up_events(ctx: Context) -> Evidence:
    """Looks at whatever comes after the last whole event."""
    events = ctx.endpoint.events()[:2]
    sent = b"".join(events)
    answer = await _truncated(ctx, sent, "no last chunk")
    if answer is None or answer.status >= 500:
        return "nothing made up"
    check(answer.body.startswith(sent) or sent.startswith(answer.body), "what had come was not passed on")
    extra = answer.body.removeprefix(sent) if answer.body.startswith(sent) else b""
    if not extra:
        return "nothing made up"
    if ctx.endpoint is Endpoint.MESSAGES:
        check(extra.startswith(b"event: error\n"), f"not Anthropic's error event: {extra[:80]!r}")
    elif ctx.endpoint is Endpoint.RESPONSES:
        ok = extra.startswith((b"event: response.failed\n", b"event: error\n"))
        check(ok, f"not an event of the Responses API: {extra[:80]!r}")
    else:
        ok = extra.startswith(b'data: {"error"') and b"\nevent:" not in extra
        check(ok, f"not an OpenAI error event: {extra[:80]!r}")
    return "an error event of the protocol"


@case(
    "F7",
    "P1",
    "An error event after a part of an event",
    "What the router makes up is an event of its own, not glued to the part that came.",
    variants=STREAMS,
    disturbs=True,
)
async def not_glued(ctx: Context) -> Evidence:
    """The backend breaks off in the middle of a data line."""
    partial = ctx.endpoint.events()[0][:-5]
    answer = await _truncated(ctx, partial, "no last chunk")
    if answer is None or not answer.body.startswith(partial) or answer.body == partial:
        return "nothing made up"
    extra = answer.body.removeprefix(partial)
    check(extra.startswith((b"\n\n", b"\r\n\r\n")), f"glued to the part that came: {extra[:60]!r}")
    return "set apart by a blank line"


@case(
    "F9",
    "P0",
    "A backend fails after the first byte of its response",
    "The request is not sent again, and nothing is duplicated.",
    variants=every_kind("close", "reset"),
    disturbs=True,
)
async def no_retry_after_the_first_byte(ctx: Context) -> Evidence:
    """Waits long enough for a retry to show."""
    first = ctx.endpoint.events()[0] if ctx.streaming else b'{"half": '

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream(content_type="text/event-stream" if ctx.streaming else "application/json")
        await exchange.chunk(first)
        await asyncio.sleep(0.05)
        if ctx.variant.option == "reset":
            exchange.reset()
        else:
            exchange.close()

    ctx.script_all(script)
    client = await ctx.start()
    try:
        answer = await ctx.answer(client)
        begun = answer.status == 200
        check(answer.body.count(first) <= 1, "the beginning came twice")
    except CaseFailed:  # closed without a head, or not HTTP any more
        begun = client.inbox.received_bytes > 0
    await asyncio.sleep(0.15)
    check(ctx.work_count == 1 or not begun, f"sent {ctx.work_count} times, and the client had a beginning")
    return "sent once" if ctx.work_count == 1 else "sent again, but no byte had left the router"


@case(
    "F10",
    "P0",
    "A JSON error to a request that asked for a stream",
    "Status, content type and message are the backend's.",
    variants=tuple(
        Variant(variant.endpoint, streaming=True, option=option)
        for variant in STREAMS
        for option in ("400", "401", "404", "422", "500")
    ),
    disturbs=True,
)
async def json_error_to_a_stream(ctx: Context) -> Evidence:
    """Relabelled as an event stream, the error is lost on every client."""
    status = int(ctx.variant.option)
    body = ctx.endpoint.error(status, "prompt is too long")
    ctx.script_all(answering(status, body))
    answer = await ctx.ask()
    check(answer.status == status, f"status {answer.status}, the backend sent {status}")
    check(answer.get("content-type") == "application/json", f"content type {answer.get('content-type')}")
    check(b"prompt is too long" in answer.body, f"the message is lost: {answer}")
    return "status, type and message kept"


@case(
    "F11",
    "P0",
    "A binary response",
    "Audio and other bytes arrive identical with their content type, asked for as a stream or not.",
    variants=(
        Variant(option="/v1/audio/speech"),
        Variant(streaming=True, option="/v1/audio/speech"),
        *every_kind(),
    ),
)
async def binary_response(ctx: Context) -> Evidence:
    """All 256 byte values, in chunks when the request says stream."""
    kind = "audio/mpeg" if ctx.variant.option else "application/octet-stream"
    if ctx.streaming:
        pieces = [BINARY[at : at + 5000] for at in range(0, len(BINARY), 5000)]
        ctx.script_all(streaming(pieces, content_type=kind))
    else:
        ctx.script_all(answering(200, BINARY, content_type=kind))
    if ctx.variant.option:
        body, _ = OTHER_ROUTES[ctx.variant.option]
        if ctx.streaming:
            body = json.dumps(json.loads(body) | {"stream": True}).encode()
        answer = await ctx.ask(request_bytes(ctx.variant.option, body))
        if not ctx.work_count and answer.status in (404, 405, 501):
            raise NotApplicable(f"the router does not carry {ctx.variant.option}")
    else:
        answer = await ctx.ask()
    _expect_same(answer, BINARY)
    check(answer.get("content-type") == kind, f"content type {answer.get('content-type')}, sent {kind}")
    return f"{len(BINARY)} bytes identical, type kept"


@case(
    "F13",
    "P0",
    "A client that does not read, and a backend with 200 MB",
    "The backend is held back; the router buffers next to nothing.",
    variants=(Variant(option="length"), Variant(streaming=True, option="chunked")),
)
async def held_back(ctx: Context) -> Evidence:
    """Counts what the backend could send (kernel buffers too), and the router's memory where it is known."""
    piece, total = b"v" * 65536, 200 << 20
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        if ctx.streaming:
            await exchange.start_stream()
        else:
            length = [("Content-Type", "application/json"), ("Content-Length", str(total))]
            await exchange.raw(head_bytes(200, length))
        while sent < total:
            await (exchange.chunk(piece) if ctx.streaming else exchange.raw(piece))
            sent += len(piece)
        if ctx.streaming:
            await exchange.end_stream()

    ctx.script_all(script)
    before = ctx.memory_bytes() if ctx.router.pid else 0
    client = await ctx.start(receive_buffer_bytes=16384)
    client.stop_reading()
    await ctx.wait_until(lambda: sent, "the response begun")
    last = -1
    while sent != last:
        last = sent
        await asyncio.sleep(0.5)
    grown = ctx.memory_bytes() - before if ctx.router.pid else 0
    check(sent < 32 << 20, f"the backend could send {sent >> 20} MiB to a client that does not read")
    check(grown < 16 << 20, f"the router grew by {grown >> 20} MiB")
    return f"held back after {sent / 2**20:.1f} MiB, the router grew by {max(grown, 0) / 2**20:.1f} MiB"


@case(
    "F14",
    "P1",
    "A slow reader",
    "Slow is fine: after a pause of two seconds and at a trickle, everything arrives.",
    variants=stream_and_whole(),
    timeout_seconds=40,
)
async def slow_is_fine(ctx: Context) -> Evidence:
    """Sixteen MB, more than all kernel buffers hold."""
    piece, count = bytes(range(256)) * 256, 256

    async def script(exchange: Exchange) -> None:
        if ctx.streaming:
            await exchange.start_stream()
            for _ in range(count):
                await exchange.chunk(piece)
            await exchange.end_stream()
        else:
            length = [("Content-Type", "application/json"), ("Content-Length", str(len(piece) * count))]
            await exchange.raw(head_bytes(200, length))
            for _ in range(count):
                await exchange.raw(piece)

    ctx.script_all(script)
    client = await ctx.start(receive_buffer_bytes=65536)
    client.stop_reading()
    await asyncio.sleep(2)
    for _ in range(10):
        client.read_again()
        await asyncio.sleep(0.01)
        client.stop_reading()
        await asyncio.sleep(0.05)
    client.read_again()
    _expect_same(await ctx.answer(client, seconds=20), piece * count)
    return f"{len(piece) * count >> 20} MiB arrived"


@case(
    "F14b",
    "P1",
    "A client that stopped reading for good",
    "After the configured time it is cut, and its backend is free.",
    variants=stream_and_whole(),
    profile=Profile(client_write_timeout_seconds=1),
)
async def stopped_for_good(ctx: Context) -> Evidence:
    """Without that a dead client holds a slot for ever."""
    piece = b"w" * 65536

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream(content_type="text/event-stream" if ctx.streaming else "application/json")
        while True:
            await exchange.chunk(piece)

    ctx.script_all(script)
    client = await ctx.start(receive_buffer_bytes=16384)
    await client.head()
    client.stop_reading()
    await ctx.wait_until(lambda: ctx.running_count == 0, "backend free again", seconds=6)
    await ctx.expect_nothing_in_flight()
    return "cut, and the backend was free"


@case(
    "F15",
    "P1",
    "Keep-alive comments and pings",
    "They pass unchanged and at once, not with the next event.",
    variants=STREAMS,
)
async def pings_pass_at_once(ctx: Context) -> Evidence:
    """Each one must have arrived before the backend sends the next."""
    pieces = [b": ping\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b":\n\n", *ctx.endpoint.events()]
    arrived = asyncio.Semaphore(0)

    async def script(exchange: Exchange) -> None:
        await exchange.start_stream()
        for piece in pieces:
            await exchange.chunk(piece)
            await arrived.acquire()
        await exchange.end_stream()

    ctx.script_all(script)
    client = await ctx.start()
    await ctx.wait_until(_holds(client, b"\r\n\r\n"), "the response head", seconds=3)
    head = await client.head()
    check(" 200 " in head.start, head.start)
    for at, piece in enumerate(pieces):
        await ctx.wait_until(_holds(client, piece), f"piece {at + 1} of {len(pieces)}", seconds=3)
        arrived.release()
    await ctx.wait_until(lambda: not ctx.running_count, "the end of the stream")
    return f"{len(pieces)} pieces, each on its own"


def _holds(client: ClientConnection, piece: bytes) -> Callable[[], bool]:
    return lambda: piece in client.inbox.buffer


@case(
    "F17",
    "P2",
    "Usage in parts",
    "Token counts that an Anthropic stream spreads over two events are added up.",
    variants=(Variant(Endpoint.MESSAGES, streaming=True),),
    needs={Capability.ADMIN},
)
async def usage_in_parts(ctx: Context) -> Evidence:
    """input_tokens come in message_start, cache_read_input_tokens in message_delta."""
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 7}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 3, "cache_read_input_tokens": 5}}
    ctx.script_all(
        streaming(
            [
                b"event: message_start\ndata: %b\n\n" % json.dumps(start).encode(),
                b"event: message_delta\ndata: %b\n\n" % json.dumps(delta).encode(),
                b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
            ]
        )
    )

    async def totals() -> tuple[int, int]:
        status = (await ctx.router.admin("/status")).json()["totals"]
        return int(status["prompt_tokens"]), int(status["requests"])

    before = await totals()
    await ctx.ask()

    async def counted() -> bool:
        return (await totals())[1] > before[1]

    await ctx.wait_for(counted, "the request counted")
    gained = (await totals())[0] - before[0]
    check(gained == 12, f"{gained} prompt tokens counted, the stream said 7 and 5")
    return "7 and 5 prompt tokens counted"


@case(
    "F18",
    "P2",
    "Frames with several choices, tool calls, log probabilities",
    "They pass byte for byte.",
    variants=STREAMS,
)
async def rich_frames(ctx: Context) -> Evidence:
    """Number formats and escapes that no encoder would write the same way."""
    call = '{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\": \\u00e9"}}'
    chunks = [
        b'data: {"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}\n\n',
        f'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}\n\n'.encode(),
        b'data: {"choices":[{"index":0,"logprobs":{"content":[{"logprob":-1.50E-3,"bytes":null}]}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"\\ud83d\\ude00"}}],"x":1e400}\n\n',
        *ctx.endpoint.events(),
    ]
    ctx.script_all(streaming(chunks))
    _expect_same(await ctx.ask(), b"".join(chunks))
    return f"{len(chunks)} frames unchanged"


@case(
    "F19",
    "P2",
    "A backend answers with something that is not HTTP",
    "The client gets a 502 with a JSON body, not a dead connection.",
    variants=every_kind("garbage", "bad status line", "bad chunk size"),
    disturbs=True,
)
async def garbage(ctx: Context) -> Evidence:
    """A bad chunk size comes after the head: then breaking off is all that is left."""
    data = {
        "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n",
        "bad status line": b"HTTP/1.1 abc Fine\r\nContent-Length: 2\r\n\r\n{}",
        "bad chunk size": head_bytes(200, [("Transfer-Encoding", "chunked")]) + b"zz\r\n{}\r\n0\r\n\r\n",
    }[ctx.variant.option]
    ctx.script_all(sending(data, then="close"))
    if ctx.variant.option == "bad chunk size":
        late = await ctx.try_answer()
        if late is None or not late.complete:
            return "broken off"
        check(late.status >= 500 or b"error" in late.body, f"a broken response looks whole: {late}")
        return "an error"
    answer = await ctx.ask()
    check(500 <= answer.status < 600, str(answer))
    try:
        answer.json()
    except ValueError:
        check(False, f"not JSON: {answer}")
    return f"{answer.status} with JSON"
