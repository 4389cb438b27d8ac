"""Section H, third part: backends that are found, by Kubernetes and by DNS.

The suite plays the API server and the name server, on loopback, with what the router's own tests use for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from conformance.backend import Backend
from conformance.context import Context
from conformance.exchange import Exchange
from conformance.model import Evidence, NotApplicable, check
from conformance.own_router import started
from conformance.profile import Profile
from conformance.registry import case, stream_and_whole

FAST = Profile(health_interval_seconds=0.2)
NAME = "_http._tcp.backends.conformance.test"
Release: TypeAlias = Callable[[], Awaitable[None]]


@case(
    "H7",
    "P1",
    "Kubernetes says which endpoints are ready",
    "Only ready endpoints get requests; one that leaves is gone at once, and its requests finish.",
    variants=stream_and_whole(),
    timeout_seconds=60,
)
async def kubernetes(ctx: Context) -> Evidence:
    """One backend is ready, one is not yet, and then they change places while a request runs."""
    from tests.support.kubernetes_api import KubernetesApi, endpoint, endpoint_slice, kubernetes_api
    from tests.support.kubernetes_store import ENDPOINT_SLICES

    first, second, never = ctx.backends

    def write(api: KubernetesApi, backend: Backend, **conditions: bool) -> None:
        name = f"vllm-{backend.name}"
        document = endpoint_slice(
            name,
            endpoint("127.0.0.1", f"pod-{backend.name}", **conditions),
            ports=[{"name": "http", "port": backend.port, "protocol": "TCP"}],
        )
        if (ENDPOINT_SLICES, "default", name) in api.store.objects:
            api.store.replace(ENDPOINT_SLICES, "default", name, document)
        else:
            api.store.create(ENDPOINT_SLICES, "default", document)
        api.tell()

    with TemporaryDirectory() as folder:
        async with kubernetes_api() as api:
            kubeconfig = await asyncio.to_thread(api.write_kubeconfig, Path(folder) / "kubeconfig")
            write(api, first)
            write(api, second, ready=False)
            write(api, never, ready=True, serving=True, terminating=True)
            async with started(ctx, replace(FAST, kubeconfig=str(kubeconfig))) as own:
                await _only(own, [first])
                release = await _hold(own, first)
                write(api, second)
                write(api, first, ready=False, serving=True, terminating=True)
                await _moved(own, [second])
                await release()
    return "requests went to who was ready, and a held response of one that left finished"


@case(
    "H19",
    "P1",
    "A name resolves to a set of addresses that changes",
    "New addresses join, old ones drain, IPv4 and IPv6.",
    variants=stream_and_whole(),
    timeout_seconds=60,
)
async def changing_names(ctx: Context) -> Evidence:
    """SRV records, because the suite's backends differ by port; one target has an IPv6 address only."""
    from tests.support.dns_server import dns_server

    four, six, last = ctx.backends
    zone = {
        ("four.conformance.test", "A"): ["127.0.0.1"],
        ("six.conformance.test", "AAAA"): ["::1"],
        ("last.conformance.test", "A"): ["127.0.0.1"],
    }
    hosts = {four: "four", six: "six", last: "last"}

    def records(backends: Sequence[Backend]) -> list[str]:
        return [f"0 0 {backend.port} {hosts[backend]}.conformance.test" for backend in backends]

    if len(six._servers) < 2:
        raise NotApplicable("this machine has no IPv6 on loopback")
    async with (
        dns_server({**zone, (NAME, "SRV"): records([four])}) as server,
        started(ctx, replace(FAST, name_server=server.address)) as own,
    ):
        await _only(own, [four])
        release = await _hold(own, four)
        server.zone[NAME, "SRV"] = records([six, last])
        await _moved(own, [six, last])
        await release()
        server.fails = {"SRV", "A", "AAAA"}
        asked = server.asked.total()
        await own.wait_until(lambda: server.asked.total() > asked + 1, "more questions")
        await _only(own, [six, last])
    return "who joined got requests, who left finished its own; a failing name server changed nothing"


async def _only(ctx: Context, backends: Sequence[Backend]) -> None:
    """All of 24 requests are answered, and by nobody else; each of the backends gets some."""
    before = {backend.name: len(backend.exchanges) for backend in ctx.backends}
    for _ in range(24):
        answer = await ctx.ask(ctx.request(ctx.unique()))
        check(answer.status == 200 and answer.complete, f"a request: {answer}")
    got = {backend.name for backend in ctx.backends if len(backend.exchanges) > before[backend.name]}
    expected = {backend.name for backend in backends}
    check(got == expected, f"backends {sorted(got)} got requests, expected {sorted(expected)}")


async def _moved(ctx: Context, backends: Sequence[Backend]) -> None:
    """The change is seen, and from then on only these get requests. No request fails meanwhile."""

    async def seen() -> bool:
        before = {backend.name: len(backend.exchanges) for backend in ctx.backends}
        for _ in range(12):
            answer = await ctx.ask(ctx.request(ctx.unique()))
            check(answer.status == 200 and answer.complete, f"a request during the change: {answer}")
        got = {backend.name for backend in ctx.backends if len(backend.exchanges) > before[backend.name]}
        return got == {backend.name for backend in backends}

    await ctx.wait_for(seen, "the change is in force")
    await _only(ctx, backends)


async def _hold(ctx: Context, backend: Backend) -> Release:
    """Begin a request that `backend` holds; what is returned lets it end and checks that it did."""
    go_on = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: 1\n\n")
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    backend.script = held
    client = await ctx.start(ctx.request(ctx.unique()))
    await ctx.wait_until(lambda: len(backend.running) == 1, "the held request at its backend")
    backend.script = backend.default

    async def release() -> None:
        check(len(backend.running) == 1, "the held request was cut by the change")
        go_on.set()
        check((await ctx.answer(client)).complete, "the held response was cut by the change")

    return release
