"""How a router's counts show in where it sends requests, for routers that tell no counts as well.

Under a least-loaded policy an idle fleet is shared out in a way that the policy itself decides (evenly, or
always the first). A count that leaked keeps requests away from its backend; a count below zero draws all of
them. So: look first, disturb one backend, look again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from conformance.backend import Backend
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.exchange import Exchange
from conformance.model import check
from conformance.scripts import well_behaved
from conformance.wire import request_bytes

REQUESTS = 60
"""For one look. A fair third of it is 20; fewer than 5 of them come by chance in one of two million looks."""


@dataclass(frozen=True, slots=True)
class Look:
    """Who got how many of REQUESTS one after the other, on an idle fleet."""

    by_backend: Counter[str]

    @property
    def favourite(self) -> str:
        """The name of the backend that got most."""
        return self.by_backend.most_common(1)[0][0]


async def look(ctx: Context) -> Look:
    """Send REQUESTS different requests, one after the other, to well-behaved backends."""
    before = {backend.name: len(backend.exchanges) for backend in ctx.backends}
    for backend in ctx.backends:
        backend.script = well_behaved(backend)
    connection = await ctx.connect()
    for _ in range(REQUESTS):
        if connection.inbox.ended:
            connection = await ctx.connect()
        body = Endpoint.CHAT.request(ctx.unique())
        await connection.send(request_bytes(Endpoint.CHAT.path, body))
        answer = await ctx.answer(connection)
        check(answer.status == 200, f"a plain request on an idle fleet: {answer}")
    connection.close()
    return Look(
        Counter({backend.name: len(backend.exchanges) - before[backend.name] for backend in ctx.backends})
    )


async def expect_counts_intact(ctx: Context, victim: Backend, first: Look) -> str:
    """Check that `victim` is neither shunned nor favoured after what was done to it; return evidence."""
    await ctx.expect_nothing_in_flight()
    second = await look(ctx)
    before, after = first.by_backend[victim.name], second.by_backend[victim.name]
    check(after * 4 >= before, f"it gets {after} of {REQUESTS} idle requests afterwards, {before} before")
    if before <= REQUESTS // 2:
        check(after < REQUESTS, f"it gets all {REQUESTS} idle requests afterwards, {before} before")
    counts = await ctx.router.in_flight()
    told = "" if counts is None else ", all counts 0"
    return f"share afterwards {after} of {REQUESTS} ({before} before){told}"


class Gate:
    """A script that holds requests until the gate opens, and then answers them."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        """Let all go."""
        self._open.set()

    async def script(self, exchange: Exchange) -> None:
        """Wait, then answer."""
        await self._open.wait()
        await exchange.respond(200, b"{}")


async def ended(ctx: Context, gate: Gate, *, seconds: float = 1.0) -> None:
    """Wait until no backend works on anything; what a router has not given up by then is answered."""
    for _ in range(int(seconds / 0.005)):
        if not ctx.running_count:
            return
        await asyncio.sleep(0.005)
    gate.open()
    await ctx.wait_until(lambda: not ctx.running_count, "backends idle")
