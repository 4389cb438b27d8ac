"""Who of a fleet is in service, seen from outside: send requests that differ, and look who gets them."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from conformance.backend import Backend
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.model import NotApplicable, Variant, check
from conformance.scripts import well_behaved
from conformance.wire import request_bytes

_Result = TypeVar("_Result")

REQUESTS = 40
"""For one look. One of three backends gets none of them by chance once in eleven million looks."""


async def share(ctx: Context, count: int = REQUESTS, *, until: frozenset[str] | None = None) -> Counter[str]:
    """Send `count` different prompts, check that all are answered with 200, and return who got how many.

    until: stop as soon as all of these have got one.
    """
    before = {backend.name: len(backend.exchanges) for backend in ctx.backends}
    seen: Counter[str] = Counter()
    for _ in range(count):
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(answer.status == 200 and answer.complete, f"a plain request: {answer}")
        seen = Counter({b.name: len(b.exchanges) - before[b.name] for b in ctx.backends}) + Counter()
        if until is not None and until <= set(seen):
            break
    return seen


async def expect_in_service(ctx: Context, *, within_seconds: float, without: tuple[Backend, ...] = ()) -> str:
    """Check that requests are answered with 200 at once, and all backends are used in time; return evidence.

    Only of backends that the router uses when all is well, and not of `without`.
    """
    for backend in ctx.backends:
        if backend not in without:
            backend.script = well_behaved(backend)
    wanted = (ctx.router.uses or frozenset()) - {backend.name for backend in without}
    began = time.monotonic()
    while True:
        before = time.monotonic() - began
        seen = await share(ctx, until=wanted)
        if wanted <= set(seen):
            return f"{len(wanted)} backends in service after {before:.1f} s"
        missing = ", ".join(sorted(wanted - set(seen)))
        soon = f"within {within_seconds:g} s" if within_seconds else f"with {REQUESTS} requests at once"
        check(time.monotonic() - began < within_seconds, f"out of service: {missing} got no work {soon}")
        await asyncio.sleep(0.02)


async def take_out(ctx: Context, victim: Backend) -> int:
    """Send different prompts until `victim`, which fails them, gets none; return how many it got.

    Raises NotApplicable when that never happens: there is nothing to come back then.
    """
    for _ in range(30):
        before = len(victim.exchanges)
        for _ in range(12):
            await ctx.ask(ctx.request(ctx.unique()))
        if victim.exchanges and len(victim.exchanges) == before:
            return before
    raise NotApplicable("the router takes no backend out that fails requests, so that none can come back")


async def carried_kinds(ctx: Context) -> list[Variant]:
    """Return each endpoint that the router has a route for, streaming and not; all backends must be well."""
    known = ctx.router.carries
    for endpoint in Endpoint:
        if endpoint not in known:
            before = ctx.work_count
            answer = await ctx.ask(request_bytes(endpoint.path, endpoint.request(ctx.unique())))
            known[endpoint] = answer.status not in (404, 405, 501) or ctx.work_count != before
    for backend in ctx.backends:
        backend.exchanges.clear()
    return [
        Variant(endpoint, stream)
        for endpoint in Endpoint
        for stream in (False, True)
        if known[endpoint] and (endpoint.streams or not stream)
    ]


def kind_request(ctx: Context, kind: Variant) -> bytes:
    """Return a request of this kind with a prompt of its own."""
    return request_bytes(kind.endpoint.path, kind.endpoint.request(ctx.unique(), stream=kind.streaming))


async def together(*work: Coroutine[Any, Any, _Result]) -> list[_Result]:
    """Run all at the same time; when one fails the others end, so that none reaches into the next case."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each, name="together") for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def allow_files(count: int) -> None:
    """Raise this process's limit on file descriptors. Raises NotApplicable where it is too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise NotApplicable(f"this machine allows {hard} file descriptors to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
