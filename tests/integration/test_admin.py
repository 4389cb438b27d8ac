"""The admin listener of a running router."""

from __future__ import annotations

import asyncio
import json

from tests.support.router import admin, ask, chat, running_router, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering


async def test_alive_always_ready_once_every_backend_was_asked() -> None:
    async def script(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            await release.wait()
            await conversation.respond()

    release = asyncio.Event()
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        assert (await admin(router, "/livez"))[0] == 200
        status, body = await admin(router, "/readyz")
        assert status == 503
        assert "asked" in json.loads(body)["cause"]
        release.set()
        await until(lambda: router.not_ready() is None)
        assert (await admin(router, "/readyz"))[0] == 200


async def test_not_ready_without_a_backend_that_can_take_a_request() -> None:
    async with running_router("http://127.0.0.1:1") as router:
        await until(lambda: "no backend" in (router.not_ready() or ""))
        assert (await admin(router, "/readyz"))[0] == 503
        assert (await admin(router, "/livez"))[0] == 200


async def test_status_and_metrics_tell_the_same_story() -> None:
    counts = {"prompt_tokens": 8, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}}
    usage = json.dumps({"usage": counts}).encode()
    async with ScriptedBackend(answering(usage)) as backend, running_router(backend.url) as router:
        for number in range(3):
            await ask(router, chat(str(number)))
        _, body = await admin(router, "/status")
        _, metrics = await admin(router, "/metrics")
    document = json.loads(body)
    assert document["totals"]["by_reason"] == {"affinity": 3}
    assert document["totals"]["observed_hit_rate"] == 0.75
    assert document["backends"][0]["share"] == 1.0
    for line in (
        b'prefix_router_requests_total{backend="a",reason="affinity",status_class="2xx"} 3.0',
        b'prefix_router_in_flight{backend="a"} 0.0',
        b'prefix_router_prompt_tokens_total{reason="affinity"} 24.0',
        b'prefix_router_cached_tokens_total{reason="affinity"} 18.0',
        b'prefix_router_time_to_first_byte_seconds_count{reason="affinity"} 3.0',
        b"prefix_router_added_latency_seconds_count 3.0",
    ):
        assert line in metrics


async def test_explain_on_the_running_fleet_agrees_with_what_happens() -> None:
    async with ScriptedBackend(answering()) as one, ScriptedBackend(answering()) as two:
        async with running_router(one.url, two.url) as router:
            for number in range(8):
                body = json.dumps(chat(f"prompt {number}")).encode()
                status, explained = await admin(router, "/explain", body)
                answer = await ask(router, body)
                assert status == 200
                decision = json.loads(explained)["decision"]
                assert decision["backend"] == answer.header("x-prefix-router-backend")
                assert decision["reason"] == answer.header("x-prefix-router-reason")
            _, explained = await admin(router, "/explain?path=/v1/embeddings", b'{"input": "x"}')
            assert json.loads(explained)["api"] == "embeddings"


async def test_the_data_port_shows_none_of_it() -> None:
    async with ScriptedBackend(answering(b"backend")) as backend, running_router(backend.url) as router:
        for path in ("/metrics", "/status", "/readyz", "/explain"):
            assert (await ask(router, b"", path, method="GET")).body == b"backend"
