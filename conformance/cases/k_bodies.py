"""Section K, first part: what is in a request body, and that all of it arrives."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import MODEL, Endpoint
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, Variant, check
from conformance.placing import GROUPS, Placing, expect_same, expect_spread, head
from conformance.registry import case, every_kind
from conformance.scripts import answering, streaming
from conformance.wire import request_bytes

UNKNOWN_FIELDS: dict[str, Any] = {
    "chat_template_kwargs": {"enable_thinking": False, "deep": {"a": [1, None, {"b": True}]}},
    "vllm_xargs": {"x": 1},
    "a_field_of_next_year": [{"nested": "yes"}],
    "top_k": 5,
    "min_p": 0.05,
    "guided_regex": "[a-z]+",
}


def _document(ctx: Context, text: str = "hello", **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ctx.endpoint.request(text, stream=ctx.streaming))
    return {**document, **fields}


def _bytes(ctx: Context, document: dict[str, Any]) -> bytes:
    return request_bytes(ctx.endpoint.path, json.dumps(document).encode())


@case(
    "K1",
    "P0",
    "Fields that the router does not know",
    "They reach the backend; the body is identical byte for byte.",
    variants=every_kind("fields", "bytes"),
)
async def body_identical(ctx: Context) -> Evidence:
    """`fields` asks only for their values; `bytes` for spacing, escapes, order and numbers as written."""
    document = _document(ctx, **UNKNOWN_FIELDS)
    body = json.dumps(document).encode()
    if ctx.variant.option == "bytes":
        odd = b', "big": 12345678901234567890123, "f": 1.10e+2 ,\t"e":"\\u00e9\\/\xc3\xa9" , "z": -0.0}\r\n'
        body = b" " + body[:-1] + odd
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, body))
    check(answer.status == 200, str(answer))
    got = ctx.served_by().exchanges[0].body
    if ctx.variant.option == "fields":
        arrived = json.loads(got)
        lost = sorted(name for name, value in document.items() if arrived.get(name) != value)
        check(not lost, f"lost or changed: {', '.join(lost)}")
        return f"all {len(document)} fields arrived"
    same = hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    check(same, f"{len(body)} bytes sent, {len(got)} other bytes arrived")
    return "identical"


@case(
    "K3",
    "P0",
    "The prompt is a list of strings",
    "It is answered, and lists with the same first string go to the same backend.",
    variants=(
        Variant(Endpoint.COMPLETIONS),
        Variant(Endpoint.COMPLETIONS, True),
        Variant(Endpoint.EMBEDDINGS),
    ),
)
async def list_of_strings(ctx: Context) -> Evidence:
    """Different first strings must spread, so that one constant key for all lists does not pass."""
    field = "prompt" if ctx.endpoint is Endpoint.COMPLETIONS else "input"
    heads = [head() for _ in range(GROUPS)]
    place = Placing(ctx)
    first = await place.of_all(_bytes(ctx, _document(ctx) | {field: [text, "one"]}) for text in heads)
    second = await place.of_all(_bytes(ctx, _document(ctx) | {field: [text, "two", "3"]}) for text in heads)
    spread = expect_spread(ctx, first, "first strings")
    return f"{spread}; {expect_same(first, second, 'same first string, other rest')}"


@case(
    "K4",
    "P0",
    "The prompt is token ids",
    "Ids decide, not how many there are: other ids spread, the same ids stay.",
    variants=(
        Variant(Endpoint.COMPLETIONS),
        Variant(Endpoint.COMPLETIONS, True),
        Variant(Endpoint.COMPLETIONS, False, "list of lists"),
        Variant(Endpoint.EMBEDDINGS),
    ),
)
async def token_ids(ctx: Context) -> Evidence:
    """All lists have the same length; the second time only ids past the prefix differ."""
    field = "prompt" if ctx.endpoint is Endpoint.COMPLETIONS else "input"

    def request(group: int, tail: int) -> bytes:
        ids = [(group * 7919 + at * 31) % 30_000 + 1000 for at in range(3000)] + [tail] * 8
        value = [ids, [1, 2, 3]] if ctx.variant.option else ids
        return _bytes(ctx, _document(ctx) | {field: value})

    place = Placing(ctx)
    first = await place.of_all(request(group, 5) for group in range(GROUPS))
    second = await place.of_all(request(group, 6) for group in range(GROUPS))
    spread = expect_spread(ctx, first, "lists of 3,008 ids")
    return f"{spread}; {expect_same(first, second, 'same 3,000 ids first')}"


_SAMPLING = ("temperature", "top_p", "user")

_NULLABLE = {
    Endpoint.CHAT: (*_SAMPLING, "tools", "tool_choice", "stop", "functions", "seed", "response_format"),
    Endpoint.COMPLETIONS: (*_SAMPLING, "suffix", "stop", "logit_bias", "seed"),
    Endpoint.RESPONSES: (
        *_SAMPLING,
        "tools",
        "instructions",
        "metadata",
        "previous_response_id",
        "reasoning",
    ),
    Endpoint.MESSAGES: ("temperature", "top_p", "tools", "system", "stop_sequences", "metadata"),
    Endpoint.EMBEDDINGS: ("user", "dimensions", "encoding_format"),
}
"""Optional fields that each API has."""


@case(
    "K5",
    "P1",
    "Explicit nulls",
    "A field that is null is the same as one that is absent: answered, and sent to the same backend.",
    variants=every_kind(),
)
async def nulls(ctx: Context) -> Evidence:
    """SDKs write all their fields, set or not."""
    nulls: dict[str, Any] = dict.fromkeys(_NULLABLE[ctx.endpoint])
    prompts = [ctx.unique("x" * 40) for _ in range(GROUPS)]
    place = Placing(ctx)
    absent = await place.of_all(_bytes(ctx, _document(ctx, text)) for text in prompts)
    null = await place.of_all(_bytes(ctx, nulls | _document(ctx, text)) for text in prompts)
    return f"{expect_spread(ctx, absent, 'prompts')}; {expect_same(absent, null, 'with nulls')}"


@case(
    "K7",
    "P1",
    "The body names no model",
    "It goes to a backend, which knows its one model, and whatever that says comes back.",
    variants=every_kind("accepted", "refused"),
)
async def no_model(ctx: Context) -> Evidence:
    """vLLM serves a request without a model; a router that has one model for all has nothing to ask."""
    document = _document(ctx)
    del document["model"]
    refusal = b'{"error": {"message": "which model?", "type": "BadRequestError", "code": 400}}'
    if ctx.variant.option == "refused":
        ctx.script_all(answering(400, refusal))
    answer = await ctx.ask(_bytes(ctx, document))
    check(ctx.work_count == 1, f"{ctx.work_count} backends were asked; the client got {answer}")
    if ctx.variant.option == "refused":
        check(answer.status == 400 and answer.body == refusal, str(answer))
        return "the backend's 400 came back as it was"
    check(answer.status == 200, str(answer))
    return "answered by a backend"


BOUNDARY = "----k8AaB03x"


def _upload(size: int) -> bytes:
    noise = bytes(range(256)) * (size // 256)
    return b"".join(
        [
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{MODEL}\r\n'.encode(),
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'.encode(),
            b"Content-Type: audio/wav\r\n\r\n",
            noise,
            f"\r\n--{BOUNDARY}--\r\n".encode(),
        ]
    )


@case(
    "K8",
    "P0",
    "Multipart uploads",
    "Boundary and bytes arrive as they were; the upload is passed on while it comes, and goes by load.",
    variants=tuple(
        Variant(option=option)
        for option in ("intact", "intact chunked", "passed on as it comes", "answer to a stream", "by load")
    ),
)
async def multipart(ctx: Context) -> Evidence:
    """Audio has no prompt: nothing to wait for, nothing to make a key of."""
    path = "/v1/audio/transcriptions"
    await ctx.require_route(path, body=b"{}")
    form = [("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")]
    option = ctx.variant.option
    if option.startswith("intact"):
        body = _upload(1 << 20)
        chunks = [body[:9], body[9:70_000], body[70_000:]] if "chunked" in option else None
        answer = await ctx.ask(request_bytes(path, body, headers=form, chunks=chunks))
        check(answer.status == 200, str(answer))
        got = ctx.served_by().exchanges[0]
        check(got.body == body, f"{len(body)} bytes sent, {len(got.body)} other bytes arrived")
        check(got.get("content-type") == form[0][1], f"Content-Type {got.get('content-type')}")
        return f"{len(body):,} bytes and the boundary arrived"
    if option == "answer to a stream":
        events = Endpoint.CHAT.events()
        ctx.script_all(streaming(events))
        answer = await ctx.ask(request_bytes(path, _upload(4096), headers=form))
        check(answer.status == 200 and answer.body == b"".join(events), str(answer))
        return "a streamed transcription arrived"
    if option == "passed on as it comes":
        for backend in ctx.backends:
            backend.read_body_first = False
        data = request_bytes(path, _upload(8 << 20), headers=form)
        client = await ctx.connect()
        await client.send(data[: len(data) // 2])
        await ctx.wait_until(
            lambda: ctx.work_count == 1, "the backend has the head before the upload is over"
        )
        await client.send(data[len(data) // 2 :])
        answer = await ctx.answer(client)
        check(answer.status == 200, str(answer))
        return "the backend had the first half before the client sent the second"
    clients = await _occupy_two(ctx)
    busy = {backend.name for backend in ctx.backends if backend.exchanges}
    place = Placing(ctx)
    uploads = await place.of_all(
        request_bytes(path, _upload(2048 + 256 * at), headers=form) for at in range(8)
    )
    for client in clients:
        client.close()
    wrong = [name for name in uploads if name in busy]
    check(not wrong, f"{len(wrong)} of 8 uploads went to a busy backend, another was idle")
    return "8 of 8 uploads went to the idle backend"


async def _occupy_two(ctx: Context) -> list[ClientConnection]:
    """Hold requests on all backends but one; work past the first of each is answered."""
    spared: list[str] = []

    async def hold(exchange: Exchange) -> None:
        if exchange.path.startswith("/v1/audio"):
            await exchange.respond(200, b"{}")
        else:
            await exchange.forever()

    ctx.script_all(hold)
    clients = []
    for _ in range(60):
        clients.append(await ctx.start(ctx.request(head())))
        await ctx.wait_until(lambda: ctx.work_count >= len(clients), "requests at the backends")
        spared = [backend.name for backend in ctx.backends if not backend.exchanges]
        if len(spared) <= 1:
            break
    if len(spared) != 1:
        raise NotApplicable("the router does not leave one of three backends idle under two requests")
    return clients
