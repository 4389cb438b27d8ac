"""Section L, first part: what two requests must have in common to meet, and what must keep them apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, Variant, check
from conformance.placing import GROUPS, Placing, expect_same, expect_spread, head
from conformance.registry import case, every_kind
from conformance.wire import request_bytes

GENERATING = tuple(
    Variant(endpoint, stream)
    for endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES, Endpoint.MESSAGES)
    for stream in (False, True)
)
CHATS = tuple(
    Variant(endpoint, stream)
    for endpoint in (Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.MESSAGES)
    for stream in (False, True)
)


def _request(
    ctx: Context, text: str = "hello", headers: tuple[tuple[str, str], ...] = (), **fields: Any
) -> bytes:
    return ctx.request(text, headers=headers, fields=fields)


def _conversation(ctx: Context, turns: Sequence[Any]) -> bytes:
    return ctx.request(fields={"input" if ctx.endpoint is Endpoint.RESPONSES else "messages": list(turns)})


async def _only_this_differs(ctx: Context, what: str, make: Callable[[int], bytes]) -> Evidence:
    """Requests 0, 1, ... that differ in one thing must spread, and each must stay when it is repeated."""
    place = Placing(ctx)
    first = await place.of_all(make(at) for at in range(GROUPS))
    again = await place.of_all(make(at) for at in range(GROUPS))
    return f"{expect_spread(ctx, first, what)}; {expect_same(first, again, 'repeated')}"


@case(
    "L10",
    "P1",
    "One session's name is the beginning of another's",
    "`session-1` and `session-12` are different sessions: not all such pairs meet.",
    variants=GENERATING,
)
async def session_names(ctx: Context) -> Evidence:
    """`prompt_cache_key` is OpenAI's field for it. Where it is ignored there is nothing to confuse."""
    text = head()
    place = Placing(ctx)
    word = ctx.unique().strip()[:12]
    short = await place.of_all(
        _request(ctx, text, prompt_cache_key=f"{word}-{at}") for at in range(100, 100 + GROUPS)
    )
    if len(set(short)) == 1:
        raise NotApplicable("the router makes no use of prompt_cache_key")
    longer = await place.of_all(
        _request(ctx, text, prompt_cache_key=f"{word}-{at}2") for at in range(100, 100 + GROUPS)
    )
    again = await place.of_all(
        _request(ctx, text, prompt_cache_key=f"{word}-{at}") for at in range(100, 100 + GROUPS)
    )
    met = sum(one == other for one, other in zip(short, longer, strict=True))
    check(met < GROUPS, f"all {GROUPS} pairs met at one backend")
    return f"{met} of {GROUPS} pairs meet; {expect_same(short, again, 'the same name')}"


@case(
    "L11",
    "P1",
    "Same beginning, different end",
    "Such requests meet; other beginnings spread.",
    variants=every_kind(),
)
async def same_beginning(ctx: Context) -> Evidence:
    """A hash over all of a request would share nothing."""
    place = Placing(ctx)
    heads = [head() for _ in range(GROUPS)]
    first = await place.of_all(_request(ctx, text + " one end") for text in heads)
    second = await place.of_all(_request(ctx, text + " another " * 9) for text in heads)
    return f"{expect_spread(ctx, first, 'beginnings')}; {expect_same(first, second, 'another end')}"


@case(
    "L11b",
    "P2",
    "A short chat that grows",
    "Its later turns go where its first one went.",
    variants=CHATS,
)
async def growing_chat(ctx: Context) -> Evidence:
    """Shorter than any prefix: a hash over the first N tokens changes with each turn until there are N."""
    place = Placing(ctx)
    heads = [head(300) for _ in range(GROUPS)]

    def turns(text: str, count: int) -> list[dict[str, str]]:
        more = [
            {"role": role, "content": f"turn {at} {text[:32]}"}
            for at in range(1, count)
            for role in ("assistant", "user")
        ]
        return [{"role": "user", "content": text}, *more]

    places = [
        await place.of_all(_conversation(ctx, turns(text, count)) for text in heads) for count in (1, 2, 6)
    ]
    spread = expect_spread(ctx, places[0], "chats")
    expect_same(places[0], places[1], "second turn")
    return f"{spread}; {expect_same(places[0], places[2], 'sixth turn')}"


@case(
    "L12",
    "P1",
    "Images whose addresses or data begin alike",
    "Different images spread, the same image stays.",
    variants=tuple(
        Variant(v.endpoint, v.streaming, option)
        for v in CHATS
        for option in ("address", "data")
        if (v.endpoint, option) != (Endpoint.MESSAGES, "address")
    ),
)
async def images(ctx: Context) -> Evidence:
    """URLs of one bucket, and PNG files of one size, begin alike for longer than a hash may look."""
    bucket = "https://bucket.example/" + "a" * 5000
    pixels = "iVBORw0KGgoAAAANSUhEUg" + "A" * 8000

    def make(at: int) -> bytes:
        digest = hashlib.sha256(str(at).encode()).hexdigest()
        data = pixels + digest
        url = f"{bucket}/{digest}" if ctx.variant.option == "address" else f"data:image/png;base64,{data}"
        if ctx.endpoint is Endpoint.MESSAGES:
            source = {"type": "base64", "media_type": "image/png", "data": data}
            content = [{"type": "image", "source": source}, {"type": "text", "text": "what?"}]
        elif ctx.endpoint is Endpoint.RESPONSES:
            content = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "what?"}]
        else:
            content = [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "what?"},
            ]
        turn = [{"role": "user", "content": content}]
        return _conversation(ctx, turn)

    return await _only_this_differs(ctx, "images", make)


@case(
    "L14",
    "P1",
    "Other tools, same messages",
    "Tools come before the messages in the prompt: other tools spread, the same stay.",
    variants=CHATS,
)
async def tools(ctx: Context) -> Evidence:
    """Names of the same length, so that only the content tells them apart."""

    def make(at: int) -> bytes:
        name = "tool_" + hashlib.sha256(str(at).encode()).hexdigest()[:8]
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        if ctx.endpoint is Endpoint.MESSAGES:
            tool: dict[str, Any] = {"name": name, "input_schema": schema}
        elif ctx.endpoint is Endpoint.RESPONSES:
            tool = {"type": "function", "name": name, "parameters": schema}
        else:
            tool = {"type": "function", "function": {"name": name, "parameters": schema}}
        return _request(ctx, "which tools have you got?", tools=[tool])

    return await _only_this_differs(ctx, "sets of tools", make)


@case(
    "L15",
    "P1",
    "Tool calls and their results in the history",
    "They are part of the prompt: other calls or results spread, the same stay.",
    variants=tuple(Variant(v.endpoint, v.streaming, option) for v in CHATS for option in ("call", "result")),
)
async def tool_calls(ctx: Context) -> Evidence:
    """A call has no text content; a result has. They stand before the first plain turn of the user."""

    def make(at: int) -> bytes:
        word = hashlib.sha256(str(at).encode()).hexdigest()[:16]
        asked = word if ctx.variant.option == "call" else "same"
        got = word if ctx.variant.option == "result" else "same"
        last = {"role": "user", "content": "go on"}
        if ctx.endpoint is Endpoint.MESSAGES:
            use = {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": asked}}
            result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": got}]}
            turns: list[Any] = [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ]
        elif ctx.endpoint is Endpoint.RESPONSES:
            arguments = json.dumps({"q": asked})
            turns = [
                {"type": "function_call", "call_id": "t1", "name": "look", "arguments": arguments},
                {"type": "function_call_output", "call_id": "t1", "output": got},
            ]
        else:
            call = {"name": "look", "arguments": json.dumps({"q": asked})}
            turns = [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "t1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "t1", "content": got},
            ]
        return _conversation(ctx, [*turns, last])

    return await _only_this_differs(ctx, f"{ctx.variant.option}s", make)


@case(
    "L16",
    "P1",
    "Text and token ids in one body",
    "The ids decide: they are what the engine computes.",
    variants=(Variant(Endpoint.COMPLETIONS), Variant(Endpoint.COMPLETIONS, True)),
)
async def ids_win(ctx: Context) -> Evidence:
    """Same text, other ids: spread. Other text, same ids: stay."""
    text = head()

    def ids(at: int) -> list[int]:
        return [(at * 7919 + step * 13) % 30_000 for step in range(3000)]

    place = Placing(ctx)
    first = await place.of_all(_request(ctx, text, prompt_token_ids=ids(at)) for at in range(GROUPS))
    if len(set(first)) == 1:
        raise NotApplicable("the router makes no use of prompt_token_ids beside a text")
    second = await place.of_all(_request(ctx, head(), prompt_token_ids=ids(at)) for at in range(GROUPS))
    return (
        f"{expect_spread(ctx, first, 'lists of ids')}; {expect_same(first, second, 'other text, same ids')}"
    )


@case(
    "L18",
    "P1",
    "Ids that are new in each request",
    "A request id never decides where a request goes: the same prompt stays.",
    variants=tuple(
        Variant(v.endpoint, v.streaming, option) for v in GENERATING for option in ("headers", "fields")
    ),
)
async def request_ids(ctx: Context) -> Evidence:
    """They are unique; as a key they share nothing."""
    heads = [head(400) for _ in range(GROUPS)]
    place = Placing(ctx)

    def make(text: str) -> bytes:
        word = ctx.unique().strip()
        if ctx.variant.option == "fields":
            return _request(ctx, text, request_id=word, metadata={"user_id": word}, user=word)
        trace = f"00-{word}-{word[:16]}-01"
        headers = (("X-Request-Id", word), ("traceparent", trace), ("X-Correlation-Id", word))
        return _request(ctx, text, headers=headers)

    first = await place.of_all(make(text) for text in heads)
    second = await place.of_all(make(text) for text in heads)
    return f"{expect_spread(ctx, first, 'prompts')}; {expect_same(first, second, 'with other ids')}"


@case(
    "L19",
    "P1",
    "A response is continued by its id",
    "`previous_response_id` goes back to the backend that made that response, as does a look at it.",
    variants=(
        Variant(Endpoint.RESPONSES),
        Variant(Endpoint.RESPONSES, True),
        Variant(Endpoint.RESPONSES, option="GET"),
    ),
)
async def continued_response(ctx: Context) -> Evidence:
    """That backend alone knows the response; every other one answers 404."""

    async def script(exchange: Exchange) -> None:
        name = f"resp_{ctx.unique().strip()}"
        if exchange.wants_stream:
            await exchange.start_stream()
            for event in Endpoint.RESPONSES.events():
                await exchange.chunk(event.replace(b"resp_1", name.encode()))
            await exchange.end_stream()
        else:
            await exchange.respond(200, Endpoint.RESPONSES.answer().replace(b"resp_1", name.encode()))

    ctx.script_all(script)
    place = Placing(ctx)
    makers: list[str] = []
    ids: list[str] = []
    for _ in range(GROUPS):
        maker, answer = await place.ask(_request(ctx, head(300)))
        check(answer.status == 200, str(answer))
        start = answer.body.index(b"resp_")
        makers.append(maker)
        ids.append(answer.body[start : start + 37].decode())
    if ctx.variant.option == "GET":
        followers = []
        for name in ids:
            before = ctx.work_count
            follower = await ctx.ask(request_bytes(f"/v1/responses/{name}", method="GET"))
            if ctx.work_count == before:
                raise NotApplicable(f"the router answers /v1/responses/ID by itself ({follower.status})")
            followers.append(
                next(
                    b.name
                    for b in ctx.backends
                    if b.exchanges and b.exchanges[-1].path.endswith(name) and b.exchanges[-1].method == "GET"
                )
            )
    else:
        followers = await place.of_all(_request(ctx, head(300), previous_response_id=name) for name in ids)
    return f"{expect_spread(ctx, makers, 'responses')}; {expect_same(makers, followers, 'continued')}"


@case(
    "L20",
    "P1",
    "`prompt_cache_key`",
    "Where it is used, it tells requests apart and keeps them together; one that is too long does no harm.",
    variants=GENERATING,
)
async def prompt_cache_key(ctx: Context) -> Evidence:
    """OpenAI's field; at most 128 characters are reasonable."""
    text = head()
    place = Placing(ctx)
    plain = await place.of(_request(ctx, text))
    endless = ["k" * 129, "k" * 100_000]
    for value in (*endless, "", 7, {"a": 1}, "\u00e9\u4e2d"):
        answer = await place.send(_request(ctx, text, prompt_cache_key=value))
        check(answer.status < 500, f"{str(value)[:20]!r}: {answer}")
    names = [f"tenant-{at}-{ctx.unique().strip()}" for at in range(GROUPS)]
    first = await place.of_all(_request(ctx, text, prompt_cache_key=name) for name in names)
    if len(set(first)) == 1:
        raise NotApplicable("the router makes no use of prompt_cache_key")
    again = await place.of_all(_request(ctx, text, prompt_cache_key=name) for name in names)
    check(await place.of(_request(ctx, text)) == plain, "the request without one has moved")
    return (
        f"{expect_spread(ctx, first, 'keys')}; {expect_same(first, again, 'same key')}; long ones do no harm"
    )
