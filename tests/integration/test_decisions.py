"""Which backend a request reaches, seen from outside."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack

from prefix_router.routing.strategies.adaptive import Adaptive
from tests.support.router import admin, ask, chat, connect, read_answer, request_bytes, running_router, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering


def naming(name: str, models: list[str] | None = None) -> ScriptedBackend:
    """A backend that says its name, and lists its models."""

    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.target == "/v1/models" and models is not None:
                data = [
                    {"id": model, "object": "model", "max_model_len": 10, "root": name} for model in models
                ]
                await conversation.respond(200, json.dumps({"object": "list", "data": data}).encode())
            elif request.target == "/v1/models":
                await conversation.respond(404, b"{}")
            else:
                await conversation.respond(200, name.encode())

    return ScriptedBackend(script)


async def test_requests_that_share_a_beginning_reach_one_backend() -> None:
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(naming(name)) for name in "abcd"]
        router = await stack.enter_async_context(running_router(*(backend.url for backend in backends)))
        homes = set()
        for prefix in range(20):
            text = f"document {prefix} " * 600
            answers = [await ask(router, chat(text + ending)) for ending in ("one", "two", "three")]
            assert len({answer.body for answer in answers}) == 1
            assert {answer.header("x-prefix-router-reason") for answer in answers} == {"affinity"}
            assert {answer.header("x-prefix-router-backend") for answer in answers} == {
                answers[0].body.decode()
            }
            homes.add(answers[0].body)
        assert len(homes) > 1


async def test_keyless_requests_spread_over_idle_backends() -> None:
    async with naming("a") as a, naming("b") as b, running_router(a.url, b.url) as router:
        answers = [await ask(router, b"not json") for _ in range(40)]
    names = Counter(answer.body for answer in answers)
    assert set(names) == {b"a", b"b"}
    assert {answer.header("x-prefix-router-reason") for answer in answers} == {"keyless"}


async def test_past_the_threshold_a_request_overflows_to_the_idle_backend() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST":
                await release.wait()
            await conversation.respond()

    release = asyncio.Event()
    async with ScriptedBackend(script) as a, ScriptedBackend(script) as b:
        async with running_router(a.url, b.url, routing={"concurrency_threshold": 4}) as router:
            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(ask(router, chat("same"))))
                await until(lambda wanted=number + 1: router.active == wanted)
            counts = sorted(member.in_flight.count for member in router.store.fleet.members)
            assert counts == [1, 4]
            release.set()
            answers = await asyncio.gather(*tasks)
    assert Counter(answer.header("x-prefix-router-reason") for answer in answers) == {
        "affinity": 4,
        "overflow": 1,
    }


async def test_a_model_is_asked_only_where_it_is_served() -> None:
    async with naming("a", ["base", "adapter"]) as a, naming("b", ["base"]) as b:
        async with running_router(a.url, b.url, models={"refresh_seconds": 30}) as router:
            await until(lambda: router.not_ready() is None)
            names = {(await ask(router, chat(str(n), model="adapter"))).body for n in range(20)}
            assert names == {b"a"}
            names = {(await ask(router, chat(str(n), model="base"))).body for n in range(40)}
            assert names == {b"a", b"b"}
            unknown = await ask(router, chat(model="secret-other"))
    assert unknown.status == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert "base" not in unknown.body.decode()


async def test_a_model_that_was_loaded_since_is_found_at_once() -> None:
    models = ["base"]
    async with naming("a", models) as a:
        async with running_router(a.url, models={"refresh_seconds": 3600}) as router:
            await until(lambda: router.not_ready() is None)
            models.append("new-adapter")
            answer = await ask(router, chat(model="new-adapter"))
    assert answer.status == 200


async def test_models_are_the_union_with_their_metadata() -> None:
    async with naming("a", ["base", "adapter"]) as a, naming("b", ["base", "other"]) as b:
        async with running_router(a.url, b.url, models={"refresh_seconds": 30}) as router:
            await until(lambda: router.not_ready() is None)
            answer = await ask(router, b"", "/v1/models", method="GET")
            one = await ask(router, b"", "/v1/models/adapter", method="GET")
            none = await ask(router, b"", "/v1/models/nobody", method="GET")
            await b.stop()
            await ask(router, chat("x"))
            for number in range(10):  # somebody meets the dead backend, and it is out
                await ask(router, chat(str(number)))
            after = await ask(router, b"", "/v1/models/", method="GET")
    assert [entry["id"] for entry in answer.json()["data"]] == ["base", "adapter", "other"]
    assert answer.json()["data"][0] == {"id": "base", "object": "model", "max_model_len": 10, "root": "a"}
    assert [entry["id"] for entry in after.json()["data"]] == ["base", "adapter"]
    assert (one.status, one.json()["id"], one.json()["root"]) == (200, "adapter", "a")
    assert (none.status, none.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_response_is_continued_where_it_was_made() -> None:
    async def script(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            port = conversation.backend.port
            body = {"id": f"resp_{port}_{len(conversation.backend.work)}", "object": "response", "port": port}
            await conversation.respond(200, json.dumps(body).encode())

    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(ScriptedBackend(script)) for _ in range(4)]
        router = await stack.enter_async_context(running_router(*(backend.url for backend in backends)))
        for number in range(12):
            first = await ask(router, {"input": f"question {number}"}, "/v1/responses")
            made = first.json()
            follow = {"input": f"and {number * 7}?", "previous_response_id": made["id"]}
            second = await ask(router, follow, "/v1/responses")
            third = await ask(router, b"", f"/v1/responses/{made['id']}", method="GET")
            assert second.json()["port"] == third.json()["port"] == made["port"]
            assert second.header("x-prefix-router-reason") == "continuation"


async def test_every_strategy_serves() -> None:
    reasons = {
        "random": "random",
        "round_robin": "round_robin",
        "least_outstanding_requests": "least_outstanding_requests",
        "session": "session",
        "prefix_aware": "affinity",
    }
    async with naming("a") as a, naming("b") as b:
        for strategy, reason in reasons.items():
            async with running_router(a.url, b.url, routing={"strategy": strategy}) as router:
                answers = [await ask(router, chat(), headers=[("X-Session-Id", "s1")]) for _ in range(4)]
                assert {answer.header("x-prefix-router-reason") for answer in answers} == {reason}
                names = [answer.body for answer in answers]
                if strategy == "round_robin":
                    assert Counter(names) == {b"a": 2, b"b": 2}
                if strategy in ("session", "prefix_aware"):
                    assert len(set(names)) == 1


async def test_the_session_may_come_in_a_cookie() -> None:
    routing = {"strategy": "session", "session": {"header": "x-none", "cookie": "sid"}}
    async with naming("a") as a, naming("b") as b, running_router(a.url, b.url, routing=routing) as router:
        answers = [await ask(router, chat(), headers=[("Cookie", "x=1; sid=abc")]) for _ in range(6)]
        without = await ask(router, chat(), headers=[("Cookie", "x=1")])
    assert len({answer.body for answer in answers}) == 1
    assert {answer.header("x-prefix-router-reason") for answer in answers} == {"session"}
    assert without.header("x-prefix-router-reason") == "keyless"


async def test_decision_headers_can_be_turned_off() -> None:
    async with naming("a") as a, running_router(a.url, response_headers={"decision": False}) as router:
        answer = await ask(router, chat())
    assert answer.header("x-prefix-router-backend") is None
    assert answer.header("x-prefix-router-reason") is None
    assert answer.header("x-request-id")


async def test_request_ids_are_taken_over_when_sound_and_made_otherwise() -> None:
    async with naming("a") as a, running_router(a.url) as router:
        given = await ask(router, chat(), headers=[("X-Request-Id", "mine-1")])
        made = await ask(router, chat(), headers=[("X-Request-Id", "x" * 500)])
        posts = a.work
    assert given.header_values("x-request-id") == ["mine-1"]
    assert posts[0].header_values("x-request-id") == ["mine-1"]
    assert len(made.header("x-request-id") or "") == 32
    assert posts[1].header("x-request-id") == made.header("x-request-id")


async def test_an_affinity_header_separates_equal_prompts_and_a_bad_one_is_refused() -> None:
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(naming(name)) for name in "abcdefgh"]
        router = await stack.enter_async_context(running_router(*(backend.url for backend in backends)))
        homes = {
            (await ask(router, chat("same"), headers=[("X-Prefix-Router-Affinity-Id", f"t{n}")])).body
            for n in range(12)
        }
        bad = await ask(router, chat("same"), headers=[("X-Prefix-Router-Affinity-Id", "x" * 65)])
    assert len(homes) > 1
    assert bad.status == 400
    assert bad.json()["error"]["code"] == "invalid_affinity_id"


async def test_in_flight_covers_the_whole_response() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method != "POST":
                await conversation.respond()
                continue
            await conversation.start_stream()
            await conversation.chunk(b"data: {}\n\n")
            await release.wait()
            await conversation.chunk(b"")

    release = asyncio.Event()
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat(stream=True)))
        await reader.readuntil(b"data: {}")
        status, body = await admin(router, "/status")
        assert status == 200
        assert json.loads(body)["backends"][0]["in_flight"] == 1
        _, metrics = await admin(router, "/metrics")
        assert b'prefix_router_in_flight{backend="a"} 1.0' in metrics
        release.set()
        await reader.readuntil(b"0\r\n\r\n")
        await until(lambda: router.active == 0)
        writer.close()


async def test_a_backend_answer_without_keepalive_works() -> None:
    script = answering(b"{}", 200, ("Connection", "close"))
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        for _ in range(3):
            writer.write(request_bytes(chat()))
            answer = await read_answer(reader)
            assert answer.status == 200
            assert answer.header("connection") is None
        writer.close()


def shared_system(question: str, ending: str = "") -> bytes:
    messages = [
        {"role": "system", "content": "You are careful. " * 400},
        {"role": "user", "content": question * 40 + ending},
    ]
    return json.dumps({"model": "m", "messages": messages}).encode()


async def test_with_depth_auto_a_shared_system_prompt_does_not_own_one_backend() -> None:
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(naming(name)) for name in "abcd"]
        urls = [backend.url for backend in backends]
        routing = {"prefix": {"depth": "auto"}}
        router = await stack.enter_async_context(running_router(*urls, routing=routing))
        for number in range(60):
            await ask(router, shared_system(f"warm up {number}"))
        names: Counter[bytes] = Counter()
        for number in range(40):
            answers = [await ask(router, shared_system(f"question {number}", end)) for end in ("a", "b", "c")]
            names.update({answer.body for answer in answers})
            assert len({answer.body for answer in answers}) == 1
        assert len(names) == 4


async def test_adaptive_brings_a_prompt_back_to_where_it_was_sent() -> None:
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(naming(name)) for name in "abcd"]
        urls = [backend.url for backend in backends]
        router = await stack.enter_async_context(running_router(*urls, routing={"strategy": "adaptive"}))
        names: Counter[bytes] = Counter()
        for number in range(40):
            text = f"document {number} " * 300
            answers = [await ask(router, chat(text + end)) for end in ("one", "two", "three")]
            assert len({answer.body for answer in answers}) == 1
            reasons = [answer.header("x-prefix-router-reason") for answer in answers]
            assert reasons == ["placed", "affinity", "affinity"]
            names[answers[0].body] += 1
        assert len(names) == 4
        strategy = router.policy.decider.strategy
        assert isinstance(strategy, Adaptive)
        await until(lambda: router.active == 0)
        assert strategy.pending_tokens() == 0
