"""Section E: content codings. A router has no business in them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import head_bytes
from conformance.model import Evidence, Variant, check
from conformance.registry import case, every_kind
from conformance.scripts import answering, sending, streaming
from conformance.wire import Answer


def _zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _expect_agreement(answer: Answer, status: int, body: bytes, codings: Sequence[str]) -> Evidence:
    """Check that coding and bytes agree: both as the backend sent them, or decoded and the header gone."""
    check(answer.status == status, f"status {answer.status}, the backend sent {status}")
    got = answer.values("content-encoding")
    if not got:
        check(answer.body[:2] != b"\x1f\x8b", "gzip bytes without Content-Encoding")
        return "decoded by the router, header removed"
    check(got == list(codings), f"Content-Encoding {got} with {len(answer.body)} bytes")
    check(answer.body == body, f"{len(answer.body)} bytes of another body, {len(body)} sent")
    return "header and bytes as the backend sent them"


async def _compressed(ctx: Context, status: int) -> Evidence:
    plain = b"".join(ctx.endpoint.events()) if ctx.streaming else ctx.endpoint.answer()
    if status != 200:
        plain = ctx.endpoint.error(status)
    body = _zipped(plain)
    coding = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    if ctx.streaming and status == 200:
        ctx.script_all(streaming([body[:10], body[10:]], coding))
    else:
        ctx.script_all(answering(status, body, coding))
    answer = await ctx.ask(ctx.request(headers=[("Accept-Encoding", "gzip")]))
    return _expect_agreement(answer, status, body, ["gzip"])


@case(
    "E1",
    "P0",
    "A compressed response",
    "Bytes and Content-Encoding reach the client together: as they came, or decoded and without the header.",
    variants=every_kind(),
)
async def compressed_response(ctx: Context) -> Evidence:
    """A router that decodes must not keep the header."""
    return await _compressed(ctx, 200)


@case(
    "E2",
    "P0",
    "A compressed error",
    "Header and bytes agree for 4xx and 5xx as well.",
    variants=tuple(
        Variant(endpoint, stream, option)
        for endpoint in Endpoint
        for stream in (False, True)
        if endpoint.streams or not stream
        for option in ("400", "404", "422", "500")
    ),
    disturbs=True,
)
async def compressed_error(ctx: Context) -> Evidence:
    """Error paths often have a reader of their own."""
    return await _compressed(ctx, int(ctx.variant.option))


@case(
    "E4",
    "P2",
    "A coding without a body",
    "204, and 200 with length 0, pass although they name gzip.",
    variants=(Variant(option="204"), Variant(option="200")),
)
async def coding_without_body(ctx: Context) -> Evidence:
    """A decoder would fail on the missing gzip header."""
    status = int(ctx.variant.option)
    length = [] if status == 204 else [("Content-Length", "0")]
    ctx.script_all(sending(head_bytes(status, [("Content-Encoding", "gzip"), *length])))
    answer = await ctx.ask()
    check(answer.status == status and answer.body == b"" and answer.complete, str(answer))
    return f"{status} passed"


@case(
    "E5",
    "P2",
    "A doubly compressed response",
    "`Content-Encoding: gzip, gzip` passes, byte for byte.",
    variants=every_kind(streaming=False),
)
async def twice_compressed(ctx: Context) -> Evidence:
    """In one header line, as backends write it."""
    body = _zipped(_zipped(ctx.endpoint.answer()))
    ctx.script_all(answering(200, body, [("Content-Encoding", "gzip, gzip")]))
    answer = await ctx.ask(ctx.request(headers=[("Accept-Encoding", "gzip")]))
    return _expect_agreement(answer, 200, body, ["gzip, gzip"])


@case(
    "E6",
    "P1",
    "Accept-Encoding of the client",
    "The backend sees the client's value or none, never one that the router made up.",
    variants=every_kind("absent", "identity", "br;q=1.0, gzip;q=0.5"),
)
async def accept_encoding(ctx: Context) -> Evidence:
    """An HTTP library that adds its own gets compressed answers that the client did not ask for."""
    option = ctx.variant.option
    headers = [] if option == "absent" else [("Accept-Encoding", option)]
    answer = await ctx.ask(ctx.request(headers=headers))
    check(answer.status == 200, str(answer))
    got = ctx.served_by().exchanges[0].values("accept-encoding")
    check(got in ([], [option]), f"the backend saw {got}, the client sent {option}")
    return "as the client sent it" if got or option == "absent" else "none"
