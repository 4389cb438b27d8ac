"""Section K, third part: names in a body (model, user) that mean something, and look-alikes that do not."""

from __future__ import annotations

import json
from typing import Any

from conformance.context import Context
from conformance.endpoints import MODEL, Endpoint
from conformance.model import CaseFailed, Evidence, Variant, check
from conformance.placing import GROUPS, Placing, expect_same, expect_spread, head
from conformance.profile import Profile
from conformance.registry import case, every_kind
from conformance.wire import request_bytes

BY_MODEL = Profile(models_refresh_seconds=0.3)
"""For backends that serve different models: the router is to notice soon."""

ADAPTER = "conformance-adapter"


@case(
    "K12",
    "P1",
    "Text that looks like a field",
    "`model` inside messages, tools and metadata arrives as it was sent; only the top one may ever change.",
    variants=every_kind(),
)
async def nested_model(ctx: Context) -> Evidence:
    """A regular expression over the body would hit these."""
    schema = {"type": "object", "properties": {"model": {"type": "string"}}}
    function = {"name": "f", "parameters": schema}
    traps: dict[str, Any] = {"metadata": {"user_id": '{"model": "quoted"}'}}
    if ctx.endpoint is Endpoint.CHAT:
        traps["tools"] = [{"type": "function", "function": function}]
    elif ctx.endpoint is Endpoint.RESPONSES:
        traps["tools"] = [{"type": "function", **function}]
    elif ctx.endpoint is Endpoint.MESSAGES:
        traps["tools"] = [{"name": "f", "input_schema": schema}]
    else:
        traps = {"user": '{"model": "quoted"}'}
    text = 'say "model": "gpt-4" and {"model":"x","stream":true}'
    document = {**traps, **json.loads(ctx.endpoint.request(text, stream=ctx.streaming))}
    answer = await ctx.ask(request_bytes(ctx.endpoint.path, json.dumps(document).encode()))
    check(answer.status == 200, str(answer))
    arrived = json.loads(ctx.served_by().exchanges[0].body)
    changed = sorted(name for name, value in document.items() if not _holds(arrived.get(name), value))
    check(not changed, f"lost or changed: {', '.join(changed)}")
    return "all of them unchanged"


def _holds(got: Any, sent: Any) -> bool:
    """Whether all of `sent` is in `got`, which may have more members."""
    if isinstance(sent, dict):
        return isinstance(got, dict) and all(_holds(got.get(name), value) for name, value in sent.items())
    if isinstance(sent, list):
        same_length = isinstance(got, list) and len(got) == len(sent)
        return same_length and all(_holds(one, other) for one, other in zip(got, sent, strict=True))
    return bool(got == sent)


async def _adapter_known(ctx: Context) -> str:
    """Let one backend serve an adapter; wait until the router knows; return that backend's name."""
    only = ctx.backends[1]
    only.control.model_objects.append({"id": ADAPTER, "object": "model", "parent": MODEL, "root": "/lora"})
    place = Placing(ctx)

    async def settled() -> bool:
        asked = [await place.ask(_for_adapter(Endpoint.CHAT, head(200))) for _ in range(8)]
        return all(name == only.name and answer.status == 200 for name, answer in asked)

    async def known() -> bool:
        try:
            return await settled()
        except CaseFailed:  # refused while the adapter is unknown
            return False

    await ctx.wait_for(known, "requests for the adapter at the one backend that has it", seconds=6)
    for backend in ctx.backends:
        backend.exchanges.clear()
    return only.name


def _for_adapter(endpoint: Endpoint, text: str, *, stream: bool = False) -> bytes:
    document = json.loads(endpoint.request(text, stream=stream))
    del document["model"]
    return request_bytes(endpoint.path, json.dumps({**document, "model": ADAPTER}).encode())


@case(
    "K13b",
    "P1",
    "10 MB before a `model` that one backend serves",
    "It goes there.",
    variants=(Variant(), Variant(streaming=True), Variant(Endpoint.MESSAGES)),
    profile=BY_MODEL,
    disturbs=True,
)
async def late_model_decides(ctx: Context) -> Evidence:
    """Four bodies with different beginnings, so that a lucky guess does not pass."""
    only = await _adapter_known(ctx)
    place = Placing(ctx)
    names = [
        await place.of(
            _for_adapter(ctx.endpoint, ctx.unique("z" * 10_000_000 if not at else "z"), stream=ctx.streaming)
        )
        for at in range(4)
    ]
    check(set(names) == {only}, f"went to {names}, only {only} serves the adapter")
    return "4 of 4 at the backend that serves it"


@case(
    "K16",
    "P1",
    '`"user": "..."` inside the prompt',
    "It is text: other prompts that quote it spread, and the same prompt stays whatever its end quotes.",
    variants=tuple(
        Variant(endpoint, stream)
        for endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.MESSAGES, Endpoint.RESPONSES)
        for stream in (False, True)
    ),
)
async def quoted_user(ctx: Context) -> Evidence:
    """Only the top level of the body has fields; and none of these is a key of its own accord."""
    place = Placing(ctx)
    heads = [head() for _ in range(GROUPS)]

    def request(text: str, user: str) -> bytes:
        quoted = f'{text} {{"user": "{user}", "session_id": "{user}"}}'
        return request_bytes(ctx.endpoint.path, ctx.endpoint.request(quoted, stream=ctx.streaming))

    first = await place.of_all(request(text, "alice") for text in heads)
    second = await place.of_all(request(text, f"bob-{at}") for at, text in enumerate(heads))
    spread = expect_spread(ctx, first, "prompts that quote one user")
    return f"{spread}; {expect_same(first, second, 'quoting another')}"


@case(
    "K17",
    "P2",
    "An adapter that only some backends have",
    "Requests for it go to those, others go to all.",
    variants=every_kind(),
    profile=BY_MODEL,
    disturbs=True,
)
async def adapter_on_one(ctx: Context) -> Evidence:
    """The others would answer 404."""
    only = await _adapter_known(ctx)
    place = Placing(ctx)
    names = await place.of_all(
        _for_adapter(ctx.endpoint, head(200), stream=ctx.streaming) for _ in range(GROUPS)
    )
    check(set(names) == {only}, f"{GROUPS - names.count(only)} of {GROUPS} went to backends without it")
    base = await place.of_all(ctx.request(head(200)) for _ in range(GROUPS))
    return f"{GROUPS} of {GROUPS} at its backend; {expect_spread(ctx, base, 'others')}"
