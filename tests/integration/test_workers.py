"""Several worker processes behind one port, as real processes: what clients and operators see of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.support.processes import router_process
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.waiting import eventually
from tests.support.workers import ENOUGH, HeldBackend, Workers, workers


async def test_all_workers_serve_and_their_leases_are_one_count(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(ENOUGH)]
        active = await router.active()
        assert sum(active.values()) == ENOUGH
        assert len(active) == 2
        assert all(active.values())
        assert await router.in_flight() == {"a": ENOUGH}
        assert await router.metric("in_flight") == ENOUGH
        assert await router.metric("active_requests") == ENOUGH
        a.release.set()
        assert all([await stream.finished() for stream in streams])
        await eventually(router.in_flight, lambda counts: counts == {"a": 0})
        assert await router.metric("active_requests") == 0


async def test_the_same_request_goes_to_the_same_home_from_every_worker(tmp_path: Path) -> None:
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(answering()) as b,
        ScriptedBackend(answering()) as c,
        workers(tmp_path, a.url, b.url, c.url) as router,
    ):
        homes = [set(await router.backends([f"text {number}"] * 10)) for number in range(12)]
        assert [len(home) for home in homes] == [1] * 12
        assert set().union(*homes) == {"a", "b", "c"}


async def test_a_threshold_is_reached_by_the_leases_of_all_workers(tmp_path: Path) -> None:
    async with HeldBackend() as a, HeldBackend() as b:
        async with workers(tmp_path, a.url, b.url, routing={"concurrency_threshold": 8}) as router:
            streams = [await router.stream() for _ in range(12)]
            home, other = streams[0].backend, streams[-1].backend
            assert [stream.backend for stream in streams] == [home] * 8 + [other] * 4
            assert home != other
            assert {stream.reason for stream in streams[8:]} == {"overflow"}
            for backend in (a, b):
                backend.release.set()
            assert all([await stream.finished() for stream in streams])


async def test_a_killed_worker_takes_its_own_requests_along_and_nothing_else(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(ENOUGH)]
        active = await router.active()
        victim, survivor = active
        os.kill(victim, signal.SIGKILL)
        await eventually(router.in_flight, lambda counts: counts == {"a": active[survivor]})
        after = await eventually(router.status, lambda status: len(status["workers"]) == 2)
        assert victim not in [worker["pid"] for worker in after["workers"]]
        assert after["worker_restarts"] == await router.metric("worker_restarts_total") == 1
        a.release.set()
        finished = [await stream.finished() for stream in streams]
        assert finished.count(True) == active[survivor]
        assert finished.count(False) == active[victim]
        answers = [await router.ask() for _ in range(ENOUGH)]  # the new one serves as well
        assert {answer.status for answer in answers} == {200}
        await eventually(router.in_flight, lambda counts: counts == {"a": 0})
        assert f"process {victim}) was killed by signal 9; {active[victim]} requests were lost" in "".join(
            router.router.log
        )


async def test_no_request_waits_for_a_worker_that_is_being_replaced_in_vain(tmp_path: Path) -> None:
    async with ScriptedBackend(answering()) as a, workers(tmp_path, a.url) as router:
        os.kill(next(iter(await router.active())), signal.SIGKILL)
        answers = await asyncio.gather(*(router.ask() for _ in range(ENOUGH)))
        assert {answer.status for answer in answers} == {200}


async def test_metrics_count_what_all_workers_have_served_and_forget_none_of_it(tmp_path: Path) -> None:
    async with ScriptedBackend(answering()) as a, workers(tmp_path, a.url) as router:
        for _ in range(ENOUGH):
            await router.ask()
        assert await router.metric("requests_total") == ENOUGH
        assert await router.metric("workers") == 2
        status = await router.status()
        assert status["totals"]["requests"] == ENOUGH
        assert status["totals"]["by_reason"] == {"affinity": ENOUGH}
        for pid in await router.active():
            os.kill(pid, signal.SIGKILL)
        await eventually(router.status, lambda status: status["worker_restarts"] == 2)
        assert await router.metric("requests_total") == ENOUGH
        for _ in range(ENOUGH):
            await router.ask()
        assert await router.metric("requests_total") == 2 * ENOUGH
        assert await router.metric("request_duration_seconds_count") == 2 * ENOUGH


async def test_what_one_worker_learns_of_a_backend_all_workers_know(tmp_path: Path) -> None:
    async def broken(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            await conversation.respond(500 if request.method == "POST" else 200)

    async with ScriptedBackend(answering()) as a, ScriptedBackend(broken) as b:
        async with workers(tmp_path, a.url, b.url) as router:
            number = 0
            while len(b.work) < 5:  # health.request_failures, on whichever workers they fall
                await router.ask(f"text {number}")
                number += 1
            await eventually(router.states, lambda states: states["b"] == "ejected")
            asked = len(b.work)
            answers = [await router.ask(f"more {number}") for number in range(ENOUGH)]
            assert {answer.header("x-prefix-router-backend") for answer in answers} == {"a"}
            assert len(b.work) == asked == 5


async def test_one_prober_asks_for_all(tmp_path: Path) -> None:
    async with ScriptedBackend(answering()) as a, workers(tmp_path, a.url, count=3) as router:
        await eventually(router.states, lambda states: states == {"a": "healthy"})
        await router.ask()
        assert [request.target for request in a.requests].count("/health") == 1


async def test_a_reload_is_in_force_in_every_worker_when_it_is_answered(tmp_path: Path) -> None:
    async with ScriptedBackend(answering()) as a, ScriptedBackend(answering()) as b:
        async with workers(tmp_path, a.url) as router:
            assert set(await router.backends(["x"] * 4)) == {"a"}
            router.config.write_text(router.config.read_text().replace(a.url, b.url).replace('"a"', '"z"'))
            status, body = await router.admin("/reload", post=True)
            assert status == 200, body
            assert set(await router.backends(["x"] * ENOUGH)) == {"z"}
            assert len(b.work) == ENOUGH


async def test_requests_end_under_a_reload_that_takes_their_backend_away(tmp_path: Path) -> None:
    async with HeldBackend() as a, ScriptedBackend(answering()) as b, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(ENOUGH)]
        router.config.write_text(router.config.read_text().replace(a.url, b.url).replace('"a"', '"z"'))
        router.router.signal(signal.SIGHUP)
        await eventually(router.in_flight, lambda counts: counts == {"z": 0})
        a.release.set()
        assert all([await stream.finished() for stream in streams])


async def test_a_drained_backend_gets_no_request_from_any_worker(tmp_path: Path) -> None:
    async with ScriptedBackend(answering()) as a, ScriptedBackend(answering()) as b:
        async with workers(tmp_path, a.url, b.url) as router:
            texts = [f"text {number}" for number in range(ENOUGH)]
            assert set(await router.backends(texts)) == {"a", "b"}
            assert (await router.admin("/backends/a/drain", post=True))[0] == 200
            await eventually(lambda: router.backends(texts), lambda backends: set(backends) == {"b"})
            assert (await router.admin("/backends/a/undrain", post=True))[0] == 200
            await eventually(lambda: router.backends(texts), lambda backends: set(backends) == {"a", "b"})


async def test_a_response_is_continued_where_it_was_made_whichever_worker_is_asked(tmp_path: Path) -> None:
    async with ScriptedBackend(answering(b'{"id": "resp_1", "object": "response"}')) as a:
        async with ScriptedBackend(answering(b'{"id": "resp_2", "object": "response"}')) as b:
            async with workers(tmp_path, a.url, b.url) as router:
                first = await router.ask(path="/v1/responses", input="hello")
                made = first.json()["id"]
                answers = [
                    await router.ask(path="/v1/responses", input=f"go on {n}", previous_response_id=made)
                    for n in range(ENOUGH)
                ]
                assert {answer.header("x-prefix-router-reason") for answer in answers} == {"continuation"}
                assert {answer.json()["id"] for answer in answers} == {made}


async def drains(router: Workers) -> None:
    """Wait until the router says that it is shutting down."""
    await eventually(router.router.readiness, lambda status: status == 503)


async def test_sigterm_lets_the_streams_of_all_workers_finish(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(ENOUGH)]
        router.router.signal(signal.SIGTERM)
        await drains(router)
        await eventually(router.refused, bool)
        a.release.set()
        assert all([await stream.finished() for stream in streams])
        assert await router.router.exit_status() == 0


async def test_a_second_signal_cuts_in_all_workers(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(4)]
        router.router.signal(signal.SIGTERM)
        await drains(router)
        router.router.signal(signal.SIGTERM)
        assert await router.router.exit_status() == 0
        assert not any([await stream.finished() for stream in streams])


async def test_the_grace_period_bounds_all_workers(tmp_path: Path) -> None:
    async with HeldBackend() as a:
        async with workers(tmp_path, a.url, timeouts={"shutdown_grace_seconds": 0.2}) as router:
            streams = [await router.stream() for _ in range(4)]
            router.router.signal(signal.SIGINT)
            assert await router.router.exit_status() == 0
            assert not any([await stream.finished() for stream in streams])


async def test_workers_do_not_outlive_their_router(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(4)]
        router.router.signal(signal.SIGKILL)
        await eventually(router.refused, bool)
        a.release.set()
        assert all([await stream.finished() for stream in streams])


async def test_a_signal_to_the_whole_process_group_still_drains(tmp_path: Path) -> None:
    async with HeldBackend() as a, workers(tmp_path, a.url) as router:
        streams = [await router.stream() for _ in range(4)]
        for pid in await router.active():
            os.kill(pid, signal.SIGTERM)
        router.router.signal(signal.SIGTERM)
        await drains(router)
        a.release.set()
        assert all([await stream.finished() for stream in streams])
        assert await router.router.exit_status() == 0


async def test_a_port_in_use_is_said_before_a_worker_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ("--backend", "http://127.0.0.1:1", "--workers", "2", "--port", port)
        with pytest.raises(
            AssertionError, match=f"cannot listen: 127.0.0.1 port {port}: Address already in use"
        ):
            async with router_process(*arguments):
                pass
