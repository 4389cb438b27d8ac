"""More requests than the backends may get: who goes, who waits, who is sent away, and with which words."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from prefix_router.app import Router
from prefix_router.observe.events import Outcome
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.health import HealthEvent
from tests.support.router import (
    RawAnswer,
    admin,
    ask,
    chat,
    connect,
    read_answer,
    request_bytes,
    running_router,
    settings_for,
    until,
)
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.turnstile import Turnstile


@asynccontextmanager
async def waiting_requests(
    router: Router, texts: list[str], path: str = "/v1/chat/completions"
) -> AsyncIterator[list[asyncio.Task[RawAnswer]]]:
    """Send requests one after the other; each is in line, or at a backend, before the next is sent."""
    tasks = []
    for text in texts:
        before = router.active
        tasks.append(asyncio.create_task(ask(router, chat(text), path)))
        await until(lambda before=before: router.active == before + 1)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def waiting(router: Router) -> int:
    count = router.status()["waiting_requests"]
    assert isinstance(count, int)
    return count


async def metric(router: Router, name: str) -> float:
    _, text = await admin(router, "/metrics")
    lines = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[1])


LIMIT_ONE = {"max_in_flight_per_backend": 1}


# Limits hold.


@pytest.mark.parametrize("strategy", ["prefix_aware", "round_robin", "session", "random"])
async def test_no_backend_gets_more_than_its_limit_and_everybody_is_served(strategy: str) -> None:
    one, two = Turnstile(open=True), Turnstile(open=True)
    async with ScriptedBackend(one) as a, ScriptedBackend(two) as b:
        async with running_router(
            a.url, b.url, limits={"max_in_flight_per_backend": 3}, routing={"strategy": strategy}
        ) as router:
            answers = await asyncio.gather(*(ask(router, chat(f"{number}")) for number in range(50)))
            assert waiting(router) == 0
    assert {answer.status for answer in answers} == {200}
    assert one.highest == two.highest == 3
    assert len(one.order) + len(two.order) == 50


async def test_the_limit_grows_with_the_weight() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        backends = [{"url": backend.url, "name": "a", "weight": 3}]
        async with running_router(limits={"max_in_flight_per_backend": 2}, backends=backends) as router:
            async with waiting_requests(router, [f"{number}" for number in range(8)]) as tasks:
                await until(lambda: turnstile.present == 6 and waiting(router) == 2)
                turnstile.let_all_through()
                assert {(await task).status for task in tasks} == {200}
    assert turnstile.highest == 6


async def test_the_limit_of_the_whole_router_holds_over_all_backends() -> None:
    one, two = Turnstile(), Turnstile()
    async with ScriptedBackend(one) as a, ScriptedBackend(two) as b:
        async with running_router(a.url, b.url, limits={"max_in_flight": 4}) as router:
            async with waiting_requests(router, [f"{number}" for number in range(12)]) as tasks:
                await until(lambda: one.present + two.present == 4)
                assert waiting(router) == 8
                for _ in tasks:
                    one.let_through()
                    two.let_through()
                assert {(await task).status for task in tasks} == {200}
    assert one.highest + two.highest <= 8
    assert len(one.order) + len(two.order) == 12


async def test_a_home_at_its_limit_overflows_and_the_next_one_waits() -> None:
    one, two = Turnstile(name=b"a"), Turnstile(name=b"b")
    async with ScriptedBackend(one) as a, ScriptedBackend(two) as b:
        async with running_router(a.url, b.url, limits=LIMIT_ONE) as router:
            async with waiting_requests(router, ["same", "same", "same"]) as tasks:
                await until(lambda: one.present == two.present == 1)
                assert waiting(router) == 1
                one.let_all_through()
                two.let_all_through()
                reasons = [(await task).header("x-prefix-router-reason") for task in tasks]
    assert reasons[:2] == ["affinity", "overflow"]


# The line.


async def test_who_waits_is_served_in_order_of_arrival() -> None:
    turnstile = Turnstile()
    texts = [f"request {number}" for number in range(12)]
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            async with waiting_requests(router, texts) as tasks:
                assert waiting(router) == 11
                turnstile.let_all_through()
                assert {(await task).status for task in tasks} == {200}
            assert await metric(router, "prefix_router_queue_wait_seconds_count") == 11
    assert turnstile.order == texts


async def test_who_waits_too_long_hears_so_and_what_runs_is_left_alone() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE, queue={"timeout_seconds": 0.05}) as router:
            async with waiting_requests(router, ["runs"]) as (running,):
                await until(lambda: turnstile.present == 1)
                answer = await ask(router, chat("waits"))
                anthropic = await ask(router, chat("waits"), "/v1/messages")
                turnstile.let_all_through()
                assert (await running).status == 200
            _, text = await admin(router, "/metrics")
    assert b'prefix_router_rejected_requests_total{code="queue_timeout"} 2.0' in text
    assert answer.status == anthropic.status == 429
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("queue_timeout", "rate_limit_error")
    assert anthropic.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(answer.header("retry-after") or 0) <= 60
    assert answer.header("x-prefix-router-reason") == "queue_timeout"
    assert answer.header("x-prefix-router-backend") is None
    assert turnstile.order == ["runs"]


@pytest.mark.parametrize("max_waiting", [0, 1, 3])
async def test_the_line_is_bounded_and_who_finds_it_full_is_sent_away_at_once(max_waiting: int) -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(
            backend.url, limits=LIMIT_ONE, queue={"max_waiting": max_waiting}
        ) as router:
            async with waiting_requests(router, [f"{number}" for number in range(1 + max_waiting)]) as tasks:
                answer = await ask(router, chat("one too many"))
                assert (answer.status, answer.json()["error"]["code"]) == (429, "queue_full")
                assert 1 <= int(answer.header("retry-after") or 0) <= 30
                assert waiting(router) == max_waiting
                turnstile.let_all_through()
                assert {(await task).status for task in tasks} == {200}
    assert "one too many" not in turnstile.order


async def test_a_client_that_leaves_while_it_waits_gives_up_its_place_at_once() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            async with waiting_requests(router, ["runs"]) as (running,):
                _, leaving = await connect(router)
                leaving.write(request_bytes(chat("leaves")))
                await until(lambda: waiting(router) == 1)
                async with waiting_requests(router, ["stays"]) as (staying,):
                    await until(lambda: waiting(router) == 2)
                    leaving.close()
                    await until(lambda: waiting(router) == 1)
                    turnstile.let_all_through()
                    assert (await running).status == (await staying).status == 200
            assert router.totals.by_outcome[Outcome.CLIENT_DISCONNECTED] == 1
    assert turnstile.order == ["runs", "stays"]


async def test_nothing_is_left_of_many_that_waited_in_vain() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE, queue={"timeout_seconds": 0.05}) as router:
            async with waiting_requests(router, ["runs"]) as (running,):
                await until(lambda: turnstile.present == 1)
                reader, writer = await connect(router)
                tasks = len(asyncio.all_tasks())
                for _ in range(3):
                    answers = await asyncio.gather(*(ask(router, chat(f"{n}")) for n in range(100)))
                    assert {answer.status for answer in answers} == {429}
                await until(lambda: len(asyncio.all_tasks()) <= tasks)
                assert (waiting(router), router.active) == (0, 1)
                turnstile.let_all_through()
                assert (await running).status == 200
                writer.write(request_bytes(chat("later")))
                assert (await read_answer(reader)).status == 200
                writer.close()


async def test_a_backend_that_comes_back_takes_from_the_line() -> None:
    one, two = Turnstile(name=b"a"), Turnstile(open=True, name=b"b")
    async with ScriptedBackend(one) as a, ScriptedBackend(two) as b:
        async with running_router(a.url, b.url, limits=LIMIT_ONE) as router:
            await until(lambda: router.not_ready() is None)
            store = router.store
            store.set_draining(store.fleet.members[1].name, True)
            async with waiting_requests(router, ["one", "two"]) as (_, second):
                await until(lambda: waiting(router) == 1)
                store.set_draining(store.fleet.members[1].name, False)
                assert (await second).body == b"b"


async def test_when_the_last_backend_goes_nobody_waits_for_it() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            await until(lambda: router.not_ready() is None)
            async with waiting_requests(router, ["one", "two"]) as (_, second):
                router.store.report(router.store.fleet.members[0].backend, HealthEvent.UNREACHABLE)
                answer = await second
    assert (answer.status, answer.json()["error"]["code"]) == (503, "no_backend_available")


async def test_a_failed_attempt_waits_for_the_next_backend_when_that_is_full() -> None:
    turnstile = Turnstile(name=b"good")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with ScriptedBackend(turnstile) as good:
        async with running_router(good.url, dead, limits=LIMIT_ONE, health={"path": "/x"}) as router:
            async with waiting_requests(router, ["same", "same", "same"]) as tasks:
                await until(lambda: turnstile.present == 1 and waiting(router) == 2)
                turnstile.let_all_through()
                assert {(await task).body for task in tasks} == {b"good"}


async def test_another_limit_holds_at_once_for_those_who_wait() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            async with waiting_requests(router, ["one", "two", "three"]) as tasks:
                await until(lambda: waiting(router) == 2)
                await router.reload(settings_for([backend.url], limits={"max_in_flight_per_backend": 2}))
                await until(lambda: waiting(router) == 1)
                await router.reload(settings_for([backend.url]))
                await until(lambda: turnstile.present == 3)
                turnstile.let_all_through()
                assert {(await task).status for task in tasks} == {200}


async def test_who_waits_when_the_router_stops_is_served_within_the_grace() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            async with waiting_requests(router, ["one", "two"]) as tasks:
                await until(lambda: waiting(router) == 1)
                stopping = asyncio.create_task(router.stop(grace_seconds=10))
                await until(lambda: router.not_ready() == "shutting down")
                turnstile.let_all_through()
                assert {(await task).status for task in tasks} == {200}
                await stopping


# What the router says meanwhile, and in which order it judges.


async def test_a_full_fleet_is_ready_and_shows_who_waits() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        async with running_router(backend.url, limits=LIMIT_ONE) as router:
            await until(lambda: router.not_ready() is None)
            async with waiting_requests(router, ["one", "two"]):
                await until(lambda: turnstile.present == 1)
                assert router.not_ready() is None
                assert (await ask(router, b"", "/health", method="GET")).status == 200
                status, body = await admin(router, "/status")
                document = json.loads(body)
                assert (status, document["waiting_requests"], document["active_requests"]) == (200, 1, 2)
                assert document["backends"][0]["max_in_flight"] == 1
                assert await metric(router, "prefix_router_waiting") == 1


async def test_the_order_of_judgement_is_wrong_then_unroutable_then_overload() -> None:
    turnstile = Turnstile()
    async with ScriptedBackend(turnstile) as backend:
        backends = [
            {"url": backend.url, "name": "a", "models": ["m"]},
            {"url": "http://127.0.0.1:9", "name": "b", "models": ["down"]},
        ]
        async with running_router(limits=LIMIT_ONE, queue={"max_waiting": 0}, backends=backends) as router:
            down = router.store.fleet.members[1]
            router.store.report(down.backend, HealthEvent.UNREACHABLE)
            assert router.store.fleet.members[1].state is BackendState.DOWN
            async with waiting_requests(router, ["runs"]):
                await until(lambda: turnstile.present == 1)
                affinity = [("X-Prefix-Router-Affinity-Id", "x" * 65)]
                wrong = await ask(router, chat(model="m"), headers=affinity)
                unknown = await ask(router, chat(model="unknown"))
                unroutable = await ask(router, chat(model="down"))
                overload = await ask(router, chat(model="m"))
    codes = [answer.json()["error"]["code"] for answer in (wrong, unknown, unroutable, overload)]
    assert codes == ["invalid_affinity_id", "model_not_found", "no_backend_available", "queue_full"]
    assert [answer.status for answer in (wrong, unknown, unroutable, overload)] == [400, 404, 503, 429]


# The retry budget.


async def dying(conversation: Conversation) -> None:
    while (request := await conversation.request()) is not None:
        if request.method == "POST":
            return
        await conversation.respond()


NEVER_EJECT = {"request_failures": 1000}


async def test_in_an_outage_the_fleet_gets_no_more_retries_than_the_budget() -> None:
    async with ScriptedBackend(dying) as one, ScriptedBackend(dying) as two, ScriptedBackend(dying) as three:
        retry = {"budget_ratio": 0.25, "budget_min_per_second": 0, "max_attempts": 3}
        async with running_router(one.url, two.url, three.url, retry=retry, health=NEVER_EJECT) as router:
            answers = [await ask(router, chat(f"{number}")) for number in range(40)]
            denied = await metric(router, "prefix_router_retries_denied_total")
        attempts = sum(len(backend.work) for backend in (one, two, three))
    assert {answer.status for answer in answers} == {502}
    assert 40 < attempts <= 50
    assert denied >= 30


@pytest.mark.parametrize("status", [503, 429])
async def test_without_budget_a_refusal_reaches_the_client_as_the_backend_said_it(status: int) -> None:
    refusing = answering(b'{"error":"full"}', status, ("Retry-After", "7"))
    async with ScriptedBackend(refusing) as one, ScriptedBackend(refusing) as two:
        retry = {"budget_ratio": 0, "budget_min_per_second": 0}
        async with running_router(one.url, two.url, retry=retry) as router:
            answers = [await ask(router, chat(f"{number}")) for number in range(10)]
            posts = [*one.work, *two.work]
            states = {member.state for member in router.store.fleet.members}
    assert {(answer.status, answer.body) for answer in answers} == {(status, b'{"error":"full"}')}
    assert {answer.header("retry-after") for answer in answers} == {"7"}
    assert len([post for post in posts if post.method == "POST"]) == 10
    assert BackendState.EJECTED not in states


async def test_leaving_a_backend_that_refuses_connections_is_free() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with ScriptedBackend(answering(b"good")) as good:
        retry = {"budget_ratio": 0, "budget_min_per_second": 0}
        async with running_router(dead, good.url, retry=retry) as router:
            answers = [await ask(router, chat(f"{number}")) for number in range(12)]
            assert await metric(router, "prefix_router_retries_denied_total") == 0
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"good")}


async def test_a_small_deployment_fails_over_by_the_floor() -> None:
    async with ScriptedBackend(dying) as bad, ScriptedBackend(answering(b"good")) as good:
        async with running_router(bad.url, good.url, health=NEVER_EJECT) as router:
            answers = [await ask(router, chat(f"{number}")) for number in range(12)]
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"good")}
