"""What a backend that joins a running fleet must show before it gets a client's request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from prefix_router.app import Router
from prefix_router.routing.fleet import BackendState
from tests.support.router import admin, ask, chat, running_router, settings_for, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering
from tests.support.waiting import eventually
from tests.support.workers import workers

BACKEND_HEADER = "x-prefix-router-backend"


class Joining:
    """An engine that answers clients at once and its first generation when the test says so.

    refused: how many generations are answered with 503 first. chat_only: it knows no completions.
    """

    def __init__(self, *, health: int = 200, refused: int = 0, chat_only: bool = False) -> None:
        self.health = health
        self.refused = refused
        self.chat_only = chat_only
        self.warm = asyncio.Event()
        self.generations: list[tuple[str, Any, str | None]] = []
        self.too_early = 0
        self.served = 0

    async def __call__(self, conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.target == "/health":
                await conversation.respond(self.health)
            elif request.target == "/v1/models":
                await conversation.respond(body=b'{"data": [{"id": "second"}, {"id": "first"}]}')
            elif request.header("user-agent") != "prefix-router":
                self.served += 1
                self.too_early += not self.warm.is_set()
                await conversation.respond()
            else:
                self.generations.append((request.target, request.json(), request.header("authorization")))
                await self._generate(conversation, request.target)

    async def _generate(self, conversation: Conversation, target: str) -> None:
        if self.chat_only and target == "/v1/completions":
            await conversation.respond(404)
        elif self.refused:
            self.refused -= 1
            await conversation.respond(503)
        else:
            await self.warm.wait()
            await conversation.respond()


def state(router: Router, name: str = "b") -> BackendState:
    return next(member.state for member in router.store.fleet.members if member.name == name)


async def homes(router: Router, requests: int = 24) -> set[str | None]:
    """Who answers so many different prompts: of two backends, each is the home of some."""
    answers = await asyncio.gather(*(ask(router, chat(f"text {number}")) for number in range(requests)))
    assert {answer.status for answer in answers} == {200}
    return {answer.header(BACKEND_HEADER) for answer in answers}


async def test_no_request_reaches_a_joining_backend_before_its_generation_has_answered() -> None:
    engine = Joining()
    async with ScriptedBackend(answering()) as a, ScriptedBackend(engine) as b:
        async with running_router(a.url) as router:
            await until(lambda: router.not_ready() is None)
            settings = settings_for(
                [a.url, b.url], joining={"warm_up": "generate"}, models={"refresh_seconds": 60}
            )
            await router.reload(settings)
            assert state(router) is BackendState.WARMING
            assert await homes(router) == {"a"}
            await until(lambda: engine.generations)
            assert await homes(router) == {"a"}
            assert b'backend_state{backend="b",state="warming"} 1.0' in (await admin(router, "/metrics"))[1]
            engine.warm.set()
            await until(lambda: state(router) is BackendState.HEALTHY)
            assert await homes(router) == {"a", "b"}
            assert engine.too_early == 0
            target, question, login = engine.generations[0]
            assert (target, question["model"], question["max_tokens"]) == ("/v1/completions", "second", 1)
            assert login is None
            first, joined = json.loads((await admin(router, "/status"))[1])["backends"]
            assert first["startup"] is None
            assert list(joined["startup"]) == [
                "discovered",
                "reachable",
                "healthy",
                "warmed",
                "first_request",
                "first_token",
            ]
            scraped = (await admin(router, "/metrics"))[1]
            assert b'prefix_router_backend_startup_seconds{backend="b",phase="warmed"}' in scraped
            assert b'prefix_router_backend_startup_seconds{backend="a"' not in scraped
            await router.reload(settings_for([a.url]))
            assert b"prefix_router_backend_startup_seconds{" not in (await admin(router, "/metrics"))[1]


async def test_a_generation_that_fails_is_asked_again_with_the_backends_login() -> None:
    engine = Joining(refused=1)
    engine.warm.set()
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        joins = {"url": b.url, "name": "b", "models": ["m"], "authorization": "Bearer k"}
        backends = [{"url": a.url, "name": "a"}, joins]
        await router.reload(settings_for([], backends=backends, joining={"warm_up": "generate"}))
        await until(lambda: state(router) is BackendState.HEALTHY)
        assert [(asked["model"], login) for _, asked, login in engine.generations] == [("m", "Bearer k")] * 2


async def test_who_knows_no_completions_is_asked_by_chat() -> None:
    engine = Joining(chat_only=True)
    engine.warm.set()
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        await router.reload(settings_for([a.url, b.url], joining={"warm_up": "generate"}))
        await until(lambda: state(router) is BackendState.HEALTHY)
        assert [target for target, _, _ in engine.generations] == ["/v1/completions", "/v1/chat/completions"]


async def test_who_does_not_get_warm_in_time_takes_traffic_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Joining()
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        joining = {"warm_up": "generate", "timeout_seconds": 0.2}
        await router.reload(settings_for([a.url, b.url], joining=joining))
        await until(lambda: state(router) is BackendState.HEALTHY)
        assert await homes(router) == {"a", "b"}
        assert "backend b is not warm after 0.2 s: it takes traffic anyway" in caplog.text
        assert "warmed" not in router.status()["backends"][1]["startup"]


async def test_with_health_a_green_answer_is_enough_and_refusals_do_not_take_it_down() -> None:
    engine = Joining(health=503)
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        await router.reload(settings_for([a.url, b.url], joining={"warm_up": "health"}))
        await until(lambda: b.requests)
        assert await homes(router) == {"a"}
        assert state(router) is BackendState.WARMING
        engine.health = 200
        await until(lambda: state(router) is BackendState.HEALTHY)
        assert not engine.generations


async def test_when_nobody_else_is_left_a_warming_backend_is_used() -> None:
    engine = Joining()
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        await router.reload(settings_for([a.url, b.url], joining={"warm_up": "generate"}))
        router.set_draining("a", True)
        assert await homes(router) == {"b"}
        assert state(router) is BackendState.WARMING


async def test_who_is_there_at_the_start_does_not_warm_up_and_off_changes_nothing() -> None:
    engine = Joining()
    async with ScriptedBackend(engine) as a, ScriptedBackend(engine) as b:
        async with running_router(a.url, joining={"warm_up": "generate"}) as router:
            assert state(router, "a") is BackendState.STARTING
            await until(lambda: router.not_ready() is None)
            await router.reload(settings_for([a.url, b.url]))
            assert state(router) is not BackendState.WARMING
            assert not engine.generations
            assert router.status()["backends"][1]["startup"]["discovered"] == 0


async def test_turned_off_while_somebody_warms_up_ends_that() -> None:
    engine = Joining()
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        running_router(a.url) as router,
    ):
        await until(lambda: router.not_ready() is None)
        await router.reload(settings_for([a.url, b.url], joining={"warm_up": "generate"}))
        await until(lambda: engine.generations)
        await router.reload(settings_for([a.url, b.url]))
        await until(lambda: state(router) is BackendState.HEALTHY)


async def test_with_workers_no_request_reaches_a_joining_backend_before_its_generation(
    tmp_path: Path,
) -> None:
    engine = Joining()
    texts = [f"text {number}" for number in range(24)]
    async with (
        ScriptedBackend(answering()) as a,
        ScriptedBackend(engine) as b,
        workers(tmp_path, a.url, joining={"warm_up": "generate"}) as router,
    ):
        await eventually(router.states, lambda states: states == {"a": "healthy"})
        document = json.loads(router.config.read_text())
        document["backends"].append({"url": b.url, "name": "b"})
        router.config.write_text(json.dumps(document))
        assert (await router.admin("/reload", post=True))[0] == 200
        assert (await router.states())["b"] == "warming"
        assert set(await router.backends(texts)) == {"a"}
        engine.warm.set()
        await eventually(router.states, lambda states: states["b"] == "healthy")
        await eventually(lambda: router.backends(texts), lambda answers: set(answers) == {"a", "b"})
        assert engine.too_early == 0

        async def startup() -> dict[str, float]:
            found: dict[str, float] = (await router.status())["backends"][1]["startup"]
            return found

        assert "warmed" in await eventually(startup, lambda phases: "first_token" in phases)
