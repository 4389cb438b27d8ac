"""Who may do what, and what is passed on: logins of backends, browsers, gateways, the admin token, limits."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefix_router.app import Router
from prefix_router.build import backends_of
from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.front_door import MAX_HEADERS
from tests.support.router import (
    RawAnswer,
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

TOKEN = "prk-" + "x" * 40
HASH = hashlib.sha256(TOKEN.encode()).hexdigest()
LOGIN = "Bearer engine-key-of-this-backend"
APP = "https://app.example.org"
MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()


async def admin_answer(
    router: Router, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    url = f"http://127.0.0.1:{router.admin_port}{path}"
    async with aiohttp.ClientSession() as session:
        async with session.request(method, url, headers=headers) as response:
            return response.status, await response.text()


def code_of(answer: RawAnswer) -> str:
    code: str = answer.json()["error"]["code"]
    return code


async def test_a_backend_with_a_login_hears_it_everywhere_and_no_key_of_a_client() -> None:
    async with ScriptedBackend(answering(MODELS)) as backend:
        async with running_router(
            backends=[{"url": backend.url, "name": "a", "authorization": LOGIN}],
            models={"refresh_seconds": 1},
            engine_metrics={"interval_seconds": 1},
        ) as router:
            keys = [("Authorization", "Bearer client-key"), ("X-Api-Key", "client-key"), ("api-key", "c")]
            answer = await ask(router, chat(), headers=keys)
            assert answer.status == 200
            await until(lambda: {r.target for r in backend.requests} >= {"/health", "/v1/models", "/metrics"})
            _, config = await admin_answer(router, "GET", "/config")
            _, status = await admin_answer(router, "GET", "/status")
    assert {tuple(request.header_values("authorization")) for request in backend.requests} == {(LOGIN,)}
    assert not any(b"client-key" in value for request in backend.requests for _, value in request.headers)
    assert "engine-key" not in config + status
    assert json.loads(config)["backends"][0]["authorization"] == "(secret)"


async def test_without_a_login_of_its_own_a_backend_hears_the_clients() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        await ask(router, chat(), headers=[("Authorization", "Bearer client-key"), ("x-api-key", "k")])
        request = backend.work[-1]
        assert request.header_values("authorization") == ["Bearer client-key"]
        assert request.header_values("x-api-key") == ["k"]
        assert backend.requests[0].header("authorization") is None  # the probe has none


async def test_keys_that_were_for_the_router_go_no_further() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        router.policy = replace(router.policy, drops_credentials=True)
        router._data.put_in_force(router.settings, backends_of(router.settings), router.policy)
        await ask(router, chat(), headers=[("Authorization", "Bearer client-key"), ("x-api-key", "k")])
    assert backend.work[-1].header("authorization") is None
    assert backend.work[-1].header("x-api-key") is None


async def test_another_login_holds_at_once_and_over_the_same_connections() -> None:
    long = {"upstream_keepalive_seconds": 3600}
    async with ScriptedBackend(answering()) as backend:
        entry: dict[str, Any] = {"url": backend.url, "name": "a", "authorization": LOGIN}
        async with running_router(backends=[entry], timeouts=long) as router:
            await ask(router, chat())
            changed = {**entry, "authorization": "Bearer another"}
            report = await router.reload(settings_for([], backends=[changed], timeouts=long))
            assert "another" not in str(report.document())
            await ask(router, chat())
            assert [r.header("authorization") for r in backend.work] == [LOGIN, "Bearer another"]
            assert len({c.number for c in backend.conversations if not c.reader.at_eof()}) == 1


async def own_cors(conversation: Conversation) -> None:
    """A backend that answers browsers by itself, as vLLM does."""
    while (request := await conversation.request()) is not None:
        lines = (("Access-Control-Allow-Origin", "*"), ("access-control-allow-credentials", "true"))
        if request.method == "POST":
            await conversation.respond(200, b"{}", *lines)
        else:
            await conversation.respond(405, b"{}", *lines)


async def test_a_page_may_use_the_router_and_hears_it_once_in_every_answer() -> None:
    cors = {"allow_origins": [APP], "expose_headers": ["x-request-id"]}
    async with ScriptedBackend(own_cors) as backend:
        async with running_router(backend.url, listen={"cors": cors}) as router:
            asking = [
                ("Origin", APP),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "authorization,content-type"),
            ]
            preflight = await ask(router, b"", method="OPTIONS", headers=asking)
            assert (preflight.status, preflight.body) == (204, b"")
            assert preflight.header("access-control-allow-headers") == "authorization,content-type"
            assert preflight.header("access-control-max-age") == "600"
            assert not backend.work
            relayed = await ask(router, chat(), headers=[("Origin", APP)])
            local = await ask(router, b"", "/health", method="GET", headers=[("Origin", APP)])
            error = await ask(
                router, b"", "/x", method="GET", headers=[("Origin", APP), ("Upgrade", "websocket")]
            )
            for answer in (preflight, relayed, local, error):
                assert answer.header_values("access-control-allow-origin") == [APP]
                assert "Origin" in answer.header_values("vary")
                assert answer.header_values("access-control-allow-credentials") == []
                assert answer.header_values("access-control-expose-headers") == ["x-request-id"]
                assert answer.header("x-request-id")
            stranger = await ask(router, chat(), headers=[("Origin", "https://evil.example")])
            assert stranger.header_values("access-control-allow-origin") == []
            assert stranger.header_values("vary") == ["Origin"]


async def test_without_origins_browsers_are_the_backends_business() -> None:
    async with ScriptedBackend(own_cors) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat(), headers=[("Origin", APP)])
        assert answer.header_values("access-control-allow-origin") == ["*"]
        assert answer.header_values("vary") == []
        asking = [("Origin", APP), ("Access-Control-Request-Method", "POST")]
        assert (await ask(router, b"", method="OPTIONS", headers=asking)).status == 405


@pytest.mark.parametrize(
    ("trusted", "chain", "proto", "forwarded", "client"),
    [
        (None, "1.1.1.1, 203.0.113.9, 127.0.0.1", "https", "for=1.1.1.1", "127.0.0.1"),
        ([], "127.0.0.1", "http", None, "127.0.0.1"),
        (["10.0.0.0/8"], "127.0.0.1", "http", None, "127.0.0.1"),
        (["127.0.0.1"], "203.0.113.9, 127.0.0.1", "https", None, "203.0.113.9"),
    ],
)
async def test_what_gateways_say_is_passed_on_as_far_as_they_are_trusted(
    caplog: pytest.LogCaptureFixture,
    trusted: list[str] | None,
    chain: str,
    proto: str,
    forwarded: str | None,
    client: str,
) -> None:
    caplog.set_level(logging.INFO)
    said = [
        ("X-Forwarded-For", "1.1.1.1, 203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=1.1.1.1"),
    ]
    async with ScriptedBackend(answering()) as backend:
        sections = {"listen": {"trusted_proxies": trusted}, "logging": {"access": True}}
        async with running_router(backend.url, **sections) as router:
            await ask(router, chat(), headers=said)
    request = backend.work[-1]
    assert request.header_values("x-forwarded-for") == [chain]
    assert request.header_values("x-forwarded-proto") == [proto]
    assert request.header("forwarded") == forwarded
    events = [getattr(record, "event", None) for record in caplog.records]
    assert [e.client_address for e in events if isinstance(e, RequestRecord)] == [client]


async def test_the_admin_listener_with_a_token() -> None:
    async with ScriptedBackend(answering()) as backend:
        async with running_router(backend.url, admin={"token_sha256": HASH}) as router:
            right, wrong = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer nope"}
            for path in ("/livez", "/metrics", "/status"):
                assert (await admin_answer(router, "GET", path))[0] == 200
            for method, path in (
                ("GET", "/config"),
                ("POST", "/reload"),
                ("POST", "/explain"),
                ("POST", "/backends/a/drain"),
                ("POST", "/backends/a/undrain"),
            ):
                assert (await admin_answer(router, method, path))[0] == 401
                assert (await admin_answer(router, method, path, wrong))[0] == 401
                assert not router.store.fleet.members[0].draining
            status, config = await admin_answer(router, "GET", "/config", right)
            assert status == 200
            assert HASH not in config
            assert (await admin_answer(router, "POST", "/backends/a/drain", right))[0] == 200
            assert router.store.fleet.members[0].draining
            _, metrics = await admin_answer(router, "GET", "/metrics")
            assert 'prefix_router_admin_refused_requests_total{cause="token_wrong"} 5.0' in metrics
            assert 'prefix_router_admin_refused_requests_total{cause="token_missing"} 5.0' in metrics
            await router.reload(settings_for([backend.url]))  # a token that has gone
            assert (await admin_answer(router, "GET", "/config"))[0] == 200
            rebound = {"Host": f"evil.example:{router.admin_port}"}
            assert (await admin_answer(router, "GET", "/config", rebound))[0] == 421
            allowed = settings_for([backend.url], admin={"allowed_hosts": ["evil.example"]})
            await router.reload(allowed)
            assert (await admin_answer(router, "GET", "/config", rebound))[0] == 200


async def refused(router: Router, wire: bytes) -> RawAnswer:
    """Send what must be refused; the connection must end, too."""
    reader, writer = await connect(router)
    writer.write(wire)
    answer = await asyncio.wait_for(read_answer(reader), 5)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    return answer


async def test_each_limit_of_a_head_has_its_status() -> None:
    limit = 1024
    sections = {"limits": {"max_header_bytes": limit}}
    async with ScriptedBackend(answering()) as backend, running_router(backend.url, **sections) as router:
        fits = [("X-A", "x" * limit)]
        assert (await ask(router, chat(), "/" + "x" * (limit - 1), headers=fits)).status == 200
        target = await refused(router, request_bytes(b"", "/" + "x" * (limit + 1), method="GET"))
        assert (target.status, code_of(target)) == (414, "target_too_long")
        value = await refused(router, request_bytes(b"", method="GET", headers=[("X-A", "x" * (limit + 1))]))
        assert (value.status, code_of(value)) == (431, "header_too_large")
        name = await refused(router, request_bytes(b"", method="GET", headers=[("x" * (limit + 1), "x")]))
        assert (name.status, code_of(name)) == (431, "header_too_large")
        many = [(f"X-{number}", "x") for number in range(MAX_HEADERS + 1)]
        count = await refused(router, request_bytes(b"", method="GET", headers=many))
        assert (count.status, code_of(count)) == (431, "header_too_large")
        assert len(backend.work) == 1


async def test_a_head_that_gets_long_and_does_not_end_is_431() -> None:
    async with ScriptedBackend(answering()) as backend:
        async with running_router(backend.url, limits={"max_header_bytes": 1024}) as router:
            reader, writer = await connect(router)
            lines = [b"X-%d: %b\r\n" % (number, b"x" * 500) for number in range(9)]
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(lines))
            answer = await asyncio.wait_for(read_answer(reader), 5)
            assert (answer.status, code_of(answer)) == (431, "header_too_large")
            writer.close()
            # A long body is no head, and neither are many requests one after the other.
            reader, writer = await connect(router)
            for _ in range(20):
                writer.write(request_bytes(chat("x" * 3000)))
                assert (await asyncio.wait_for(read_answer(reader), 5)).status == 200
            writer.close()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("mine-1", True),
        ("x" * 128, True),
        ("a/b:c=d;e", True),
        ("x" * 129, False),
        ("two words", False),
        ("tab\tbed", False),
        ("\xe9", False),
        ("", False),
    ],
)
async def test_a_request_id_that_is_sound_is_kept_and_any_other_replaced(given: str, kept: bool) -> None:
    async with ScriptedBackend(answering(b"{}", 200, ("X-Request-Id", "backends-own"))) as backend:
        async with running_router(backend.url) as router:
            relayed = await ask(router, chat(), headers=[("X-Request-Id", given)])
            local = await ask(router, b"", "/health", method="GET", headers=[("X-Request-Id", given)])
    (returned,) = relayed.header_values("x-request-id")
    assert backend.work[-1].header_values("x-request-id") == [returned]
    for answer in (relayed, local):
        (value,) = answer.header_values("x-request-id")
        assert (value == given) is kept
        assert kept or (len(value) == 32 and value.isalnum())
