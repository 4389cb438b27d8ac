"""Section H, second part: who belongs to the fleet, addresses, and changes while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence

from conformance.backend import Backend
from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Capability, CaseFailed, Evidence, NotApplicable, Variant, check
from conformance.own_router import spawned, started
from conformance.profile import Profile
from conformance.registry import case, every_kind, stream_and_whole
from conformance.scripts import streaming_then_hanging
from conformance.service import carried_kinds, expect_in_service, kind_request, share, together
from conformance.wire import BrokenError, ClosedError, request_bytes

FAST = Profile(health_interval_seconds=0.2)


@contextlib.asynccontextmanager
async def _restored(ctx: Context) -> AsyncIterator[None]:
    """Give the router all its backends again at the end, so that the next case may use it."""
    yield
    await ctx.set_backends(ctx.backends)


def _names(backends: Sequence[Backend]) -> str:
    return "".join(backend.name for backend in backends)


@case(
    "H7b",
    "P1",
    "A backend is taken out of the list while requests run",
    "From the answer on it gets no new request; what runs there finishes.",
    variants=stream_and_whole(),
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
)
async def removed_at_once(ctx: Context) -> Evidence:
    """Responses that have begun are held over the change."""
    go_on = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: 1\n\n")
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    ctx.script_all(held)
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(12)]
    await ctx.wait_until(lambda: ctx.running_count == 12, "12 requests at the backends")
    leaving, *staying = ctx.backends
    running = len(leaving.running)
    async with _restored(ctx):
        await ctx.set_backends(staying)
        for backend in staying:
            backend.script = backend.default
        await share(ctx, 24)
        new = len(leaving.exchanges) - running
        check(not new, f"{new} of 24 requests went to the backend that was removed")
        go_on.set()
        answers = [await ctx.answer(client) for client in clients]
        check(all(answer.complete for answer in answers), "a response was cut by the change")
    return "24 requests to the others, 12 held responses finished"


@case(
    "H7c",
    "P1",
    "An operator drains one backend and undrains it",
    "It gets no new request, what runs there finishes, and its keys come home afterwards.",
    variants=stream_and_whole(),
    profile=FAST,
    needs={Capability.ADMIN},
)
async def drained(ctx: Context) -> Evidence:
    """Through the admin interface of prefix_router."""
    prompt = ctx.unique()
    await ctx.ask(ctx.request(prompt))
    home = ctx.served_by()
    home.script = streaming_then_hanging([b"data: {}\n\n"])
    client = await ctx.start(ctx.request(prompt))
    await client.head()
    path = f"/backends/127.0.0.1:{home.port}"
    answer = await ctx.router.admin(f"{path}/drain", method="POST")
    if answer.status == 404:
        raise NotApplicable("this checkout has no drain of one backend")
    check(answer.status == 200, f"drain: {answer}")
    try:
        before = len(home.exchanges)
        for _ in range(12):
            check((await ctx.ask(ctx.request(prompt))).status == 200, "a request during the drain")
        await share(ctx, 12)
        check(len(home.exchanges) == before, "a drained backend got a request")
        check(home.running, "what ran at the drained backend was cut")
    finally:
        answer = await ctx.router.admin(f"{path}/undrain", method="POST")
    check(answer.status == 200, f"undrain: {answer}")
    home.script = home.default
    before = len(home.exchanges)
    await ctx.ask(ctx.request(prompt))
    check(len(home.exchanges) == before + 1, "the prompt did not come home after undrain")
    return "24 requests elsewhere, the running one not cut, home again after undrain"


@case(
    "H9",
    "P1",
    "The list of backends changes again and again",
    "Exactly the backends of the present list are probed.",
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
    timeout_seconds=40,
)
async def probes_follow(ctx: Context) -> Evidence:
    """Up to a hundred changes, as many as come through in three seconds."""
    a, b, c = ctx.backends
    lists = ([a, b], [b, c], [a], [a, b, c])
    changes = 0
    began = time.monotonic()
    async with _restored(ctx):
        while changes < 99 and (time.monotonic() - began < 3 or changes < 4):
            await ctx.set_backends(lists[changes % 4])
            changes += 1
        await ctx.set_backends([a, c])
        await asyncio.sleep(0.1)  # what was under way
        for backend in ctx.backends:
            backend.control_requests.clear()
        seconds = await ctx.wait_until(
            lambda: all(_probes(backend) >= 2 for backend in (a, c)), "two probes of each", seconds=8
        )
        check(not _probes(b), f"a removed backend was probed {_probes(b)} times")
        most = max(_probes(a), _probes(c))
        check(most <= 3 + seconds / 0.1, f"one backend was probed {most} times in {seconds:.1f} s")
    return f"{changes + 1} changes; those of the last list are probed, the removed one is not"


def _probes(backend: Backend) -> int:
    return sum(exchange.path.startswith("/health") for exchange in backend.control_requests)


@case(
    "H9b",
    "P1",
    "A reload finds mistakes in the file",
    "It is refused as a whole, and everything goes on as before.",
    profile=FAST,
    needs={Capability.ADMIN, Capability.FRESH},
)
async def broken_reload(ctx: Context) -> Evidence:
    """Half a file, a wrong value, and no backend at all."""
    if ctx.router.folder is None:
        raise NotApplicable("the suite did not start the router")
    path = ctx.router.folder / "prefix-router.yaml"
    good = path.read_text(encoding="utf-8")
    broken = (good[: len(good) // 2], json.dumps({**json.loads(good), "backends": []}), "routing: 7")
    try:
        for text in broken:
            path.write_text(text, encoding="utf-8")
            answer = await ctx.router.admin("/reload", method="POST")
            check(answer.status == 422, f"reload of {text[:30]!r}: {answer}")
            await expect_in_service(ctx, within_seconds=0)
    finally:
        path.write_text(good, encoding="utf-8")
    answer = await ctx.router.admin("/reload", method="POST")
    check(answer.status == 200, f"reload of the good file: {answer}")
    return f"{len(broken)} broken files refused with 422, all backends in service throughout"


@case(
    "H10",
    "P1",
    "Requests come while the router starts and no backend is there",
    "Refused, or 503; never 500, never a hang. As soon as backends are there, 200.",
    variants=tuple(Variant(option=option) for option in ("refused", "hung")),
    profile=FAST,
    disturbs=True,
    timeout_seconds=40,
)
async def startup_race(ctx: Context) -> Evidence:
    """Where there is an admin interface, readiness must say the same."""
    for backend in ctx.backends:
        if ctx.variant.option == "refused":
            await backend.refuse()
        else:
            backend.silent = True
    async with spawned(ctx, ctx.profile) as own:
        before = await _early(own, seconds=0.6)
        for backend in ctx.backends:
            backend.silent = False
            for connection in list(backend.connections):
                connection.abort()
            await backend.start()

        async def ok() -> bool:
            return await _status(own) == "200"

        seconds = await own.wait_for(ok, "200 once the backends are there", seconds=12)
        if own.router.admin_port is not None:
            ready = await own.router.admin("/readyz")
            check(ready.status == 200, f"readiness while requests are answered: {ready}")
    return f"{before} before; 200 {seconds:.1f} s after the backends came"


async def _early(own: Context, *, seconds: float) -> str:
    """Ask until so long after the first connection (or 4 s in all); return what was seen."""
    seen: set[str] = set()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        status = await _status(own)
        allowed = status in ("refused", "502", "503", "504") or (status == "held" and own.backends[0].silent)
        check(allowed, f"a request before any backend was there: {status}")
        if status != "refused" and not seen - {"refused"}:
            deadline = time.monotonic() + seconds
        seen.add(status)
        if own.router.admin_port is not None and status != "refused":
            ready = await own.router.admin("/readyz")
            check(ready.status == 503, f"readiness before any backend was there: {ready}")
            seen.add("not ready")
        await asyncio.sleep(0.1)
    return ", ".join(sorted(seen))


async def _status(own: Context) -> str:
    """Return the status of a request; `refused` without a router, `held` when nothing came for a second."""
    try:
        connection = await own.connect()
    except CaseFailed:
        return "refused"
    await connection.send(own.request(own.unique()))
    try:
        async with asyncio.timeout(1):
            return str((await connection.answer()).status)
    except (ClosedError, BrokenError):
        return "closed"
    except TimeoutError:
        return "held"
    finally:
        connection.close()


@case(
    "H11",
    "P1",
    "One host, several ports, and the ports change",
    "A backend is its host and its port: exactly the present list is used.",
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
    timeout_seconds=40,
)
async def ports_change(ctx: Context) -> Evidence:
    """Shrink, replace, grow."""
    a, b, c = ctx.backends
    lists = ([a, b], [b], [c], [a, c])
    async with _restored(ctx):
        for wanted in lists:
            await ctx.set_backends(wanted)
            used = await share(ctx, 16)
            stray = set(used) - {backend.name for backend in wanted}
            check(not stray, f"with the list {_names(wanted)}, {sorted(stray)} got requests")
    return f"lists {', '.join(_names(wanted) for wanted in lists)}: no request to another backend, all 200"


@case(
    "H13",
    "P1",
    "A request without a model",
    "It reaches a backend, like any other.",
    variants=every_kind(),
)
async def without_a_model(ctx: Context) -> Evidence:
    """Twice the same; the backend gets the body as it was sent."""
    document = json.loads(ctx.endpoint.request(ctx.unique(), stream=ctx.streaming))
    del document["model"]
    body = json.dumps(document).encode()
    for _ in range(2):
        answer = await ctx.ask(request_bytes(ctx.endpoint.path, body))
        check(answer.status == 200, str(answer))
    check(ctx.work_count == 2, f"{ctx.work_count} requests at backends")
    return "twice 200 from a backend"


ADDRESSES = {
    "no scheme": "127.0.0.1:{port}",
    "slash": "http://127.0.0.1:{port}/",
    "/v1/": "http://127.0.0.1:{port}/v1/",
}


@case(
    "H14",
    "P1",
    "A backend's address without scheme, with a slash, with /v1/",
    "It is understood, and paths come out right: no `//v1`, no `/v1/v1`.",
    variants=tuple(Variant(option=option) for option in ADDRESSES),
    timeout_seconds=40,
)
async def written_addresses(ctx: Context) -> Evidence:
    """A router of its own for each way to write it; every kind of request."""
    kinds = await carried_kinds(ctx)
    async with started(ctx, Profile(backend_address=ADDRESSES[ctx.variant.option])) as own:
        for kind in kinds:
            answer = await own.ask(kind_request(own, kind))
            check(answer.status == 200, f"{kind.name}: {answer}")
        paths = {exchange.path for backend in ctx.backends for exchange in backend.exchanges}
    wanted = {kind.endpoint.path for kind in kinds}
    wrong = sorted(path for path in paths if "//" in path or "/v1/v1" in path)
    check(wanted <= paths and not wrong, f"paths at the backend: {wrong or sorted(paths)}")
    return f"{len(kinds)} kinds of requests, paths as sent"


@case(
    "H15",
    "P1",
    "Backends come and go under load",
    "No request fails.",
    variants=stream_and_whole(),
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
    timeout_seconds=40,
)
async def changes_under_load(ctx: Context) -> Evidence:
    """Eight clients without a pause; one backend is removed and added for a second and a half."""
    over = asyncio.Event()
    answered = 0

    async def client() -> None:
        nonlocal answered
        while not over.is_set():
            answer = await ctx.ask(ctx.request(ctx.unique()))
            check(answer.status == 200 and answer.complete, f"a request during a change: {answer}")
            answered += 1

    changes = 0

    async def change() -> None:
        nonlocal changes
        began = time.monotonic()
        try:
            while time.monotonic() - began < 1.5 or changes < 2:
                await ctx.set_backends(ctx.backends[:2] if changes % 2 == 0 else ctx.backends)
                changes += 1
        finally:
            over.set()

    async with _restored(ctx):
        await together(change(), *(client() for _ in range(8)))
    check(answered > changes, f"only {answered} requests during {changes} changes")
    return f"{answered} requests during {changes} changes, all 200"


@case(
    "H18",
    "P2",
    "A backend behind a base path",
    "The path goes in front of each request's path, once.",
    variants=(Variant(option="/serving/llm"),),
    timeout_seconds=40,
)
async def base_path(ctx: Context) -> Evidence:
    """As KServe and gateways have it."""
    kinds = await carried_kinds(ctx)
    address = "http://127.0.0.1:{port}" + ctx.variant.option
    async with started(ctx, Profile(backend_address=address)) as own:
        for kind in kinds:
            answer = await own.ask(kind_request(own, kind))
            check(answer.status == 200, f"{kind.name}: {answer}")
    posts = [each for backend in ctx.backends for each in backend.exchanges if each.method == "POST"]
    paths = {exchange.path for exchange in posts}
    wanted = {f"/serving/llm{kind.endpoint.path}" for kind in kinds}
    wrong = sorted(path for path in paths if "//" in path or not path.startswith("/serving/llm/v1/"))
    check(wanted <= paths and not wrong, f"paths at the backend: {wrong or sorted(paths)}")
    return f"{len(kinds)} kinds of requests, the base path in front of each"


@case(
    "H21",
    "P1",
    "The fleet changes while everything looks at it",
    "Requests, /v1/models, /health and counts are answered throughout, and each whole.",
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
    timeout_seconds=40,
)
async def looked_at_while_changing(ctx: Context) -> Evidence:
    """Everybody reads without a pause for a second."""
    over = asyncio.Event()
    looks = 0

    async def ask(data: bytes | None) -> None:
        nonlocal looks
        while not over.is_set():
            answer = await ctx.ask(data or ctx.request(ctx.unique()))
            check(answer.status == 200 and answer.complete, f"during a change: {answer}")
            looks += 1

    async def counts() -> None:
        while not over.is_set():
            found = await ctx.router.in_flight()
            check(found is None or all(count >= 0 for count in found.values()), f"counts {found}")
            await asyncio.sleep(0.01)

    changes = 0

    async def change() -> None:
        nonlocal changes
        began = time.monotonic()
        try:
            while time.monotonic() - began < 1 or changes < 2:
                await ctx.set_backends(ctx.backends[changes % 2 : 2 + changes % 2])
                changes += 1
        finally:
            over.set()

    readers = (None, None, *(request_bytes(path, method="GET") for path in ("/v1/models", "/health")))
    async with _restored(ctx):
        await together(change(), counts(), *(ask(data) for data in readers))
    await ctx.expect_nothing_in_flight()
    return f"{looks} looks during {changes} changes, all 200"


@case(
    "H22",
    "P2",
    "The same list again, and in another order",
    "Nothing changes: streams run on, and each prompt keeps its backend.",
    profile=FAST,
    needs={Capability.MEMBERSHIP},
    disturbs=True,
    timeout_seconds=40,
)
async def same_list(ctx: Context) -> Evidence:
    """Sixteen prompts, each asked once before and once after."""
    prompts = [ctx.unique("p" * 200) for _ in range(16)]

    async def homes() -> list[str]:
        found = []
        for prompt in prompts:
            for backend in ctx.backends:
                backend.exchanges = [each for each in backend.exchanges if each.ended_at is None]
            before = {backend.name: len(backend.exchanges) for backend in ctx.backends}
            check((await ctx.ask(ctx.request(prompt))).status == 200, "a plain request")
            found += [b.name for b in ctx.backends if len(b.exchanges) > before[b.name]]
        return found

    first = await homes()
    ctx.script_all(streaming_then_hanging([b"data: {}\n\n"]))
    clients = [await ctx.start(ctx.request(ctx.unique())) for _ in range(6)]
    await ctx.wait_until(lambda: ctx.running_count == 6, "6 requests at the backends")
    for backend in ctx.backends:
        backend.script = backend.default
    for wanted in (ctx.backends, ctx.backends, ctx.backends[::-1]):
        await ctx.set_backends(wanted)
    second = await homes()
    check(ctx.running_count == 6, f"{6 - ctx.running_count} of 6 streams were cut")
    moved = sum(before != after for before, after in zip(first, second, strict=True))
    for client in clients:
        client.close()
    check(not moved, f"{moved} of 16 prompts have another backend")
    return "3 times the same list: 6 streams run on, 16 prompts keep their backend"
