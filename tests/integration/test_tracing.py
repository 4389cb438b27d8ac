"""Traces through a running router: what a real receiver of OTLP gets, and which headers a backend gets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prefix_router.app import Router
from prefix_router.observe import collector
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.support.router import admin, ask, chat, connect, request_bytes, running_router, settings_for, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering, playing
from tests.support.waiting import eventually
from tests.support.workers import workers

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
SECRET = "a prompt that nobody may read"
USAGE = {"prompt_tokens": 64, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 48}}
ANSWER = json.dumps({"object": "chat.completion", "choices": [], "usage": USAGE}).encode()
STREAM = (
    b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n',
    b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n",
    b"data: [DONE]\n\n",
)


@asynccontextmanager
async def tracing(receiver: OtlpReceiver, *urls: str, **sections: Any) -> AsyncIterator[Router]:
    """A router that traces. When it has stopped, all spans are at the receiver."""
    settings = {"endpoint": receiver.url, **sections.pop("tracing", {})}
    async with running_router(*urls, tracing=settings, **sections) as router:
        yield router


async def streaming(conversation: Conversation) -> None:
    while await conversation.request() is not None:
        await conversation.start_stream()
        for event in STREAM:
            await conversation.chunk(event)
        await conversation.chunk(b"")


def only(spans: list[ReceivedSpan]) -> ReceivedSpan:
    (span,) = spans
    return span


async def test_a_request_joins_the_trace_of_its_client_and_its_backend_joins_ours() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url) as router:
                headers = [("TraceParent", SAMPLED), ("tracestate", "a=1"), ("TRACESTATE", "b=2")]
                body = chat(SECRET, model="m", max_tokens=7)
                assert (await ask(router, body, headers=headers)).status == 200
        server, client = only(receiver.of_kind("server")), only(receiver.of_kind("client"))
    assert (server.trace, server.parent, server.state) == (TRACE, SPAN, "a=1,b=2")
    assert (client.trace, client.parent, client.state) == (TRACE, server.id, "a=1,b=2")
    (sent,) = backend.work
    assert sent.header_values("traceparent") == [f"00-{TRACE}-{client.id}-01"]
    assert sent.header_values("tracestate") == ["a=1,b=2"]
    assert server.began_ns <= client.began_ns <= client.ended_ns <= server.ended_ns
    assert server.flags == 0x301  # sampled, and its parent is known to be elsewhere
    assert client.flags == 0x101
    assert server.name == client.name == "POST /v1/chat/completions"
    assert server.resource["service.name"] == "prefix-router"
    assert not server.failed
    assert SECRET.encode() not in b"".join(receiver.bodies)


async def test_what_the_span_of_a_request_holds() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url, routing={"strategy": "adaptive"}) as router:
                await ask(router, chat(SECRET, model="m"), headers=[("x-request-id", "r1")])
        server, client = only(receiver.of_kind("server")), only(receiver.of_kind("client"))
    found = server.attributes
    for changing in ("prefix_router.key", "prefix_router.router_seconds", "prefix_router.first_byte_seconds"):
        assert found.pop(changing)
    length = found.pop("prefix_router.prompt_length")
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "http.request.body.size": len(json.dumps(chat(SECRET, model="m"))),
        "http.response.body.size": len(ANSWER),
        "client.address": "127.0.0.1",
        "url.scheme": "http",
        "url.path": "/v1/chat/completions",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 64,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 48,
        "prefix_router.request_id": "r1",
        "prefix_router.api": "chat",
        "prefix_router.outcome": "completed",
        "prefix_router.backend": "a",
        "prefix_router.reason": found["prefix_router.reason"],
        "prefix_router.home": "a",
        "prefix_router.attempts": 1,
        "prefix_router.shared_tokens": 0,
        "prefix_router.expected_tokens": 0,
    }
    assert 0 < length < 100
    assert client.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.full": f"{backend.url}/v1/chat/completions",
        "server.address": "127.0.0.1",
        "server.port": backend.port,
        "prefix_router.backend": "a",
        "prefix_router.reason": found["prefix_router.reason"],
    }


async def test_a_request_without_a_trace_begins_one() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url) as router:
                await ask(router, chat())
                await ask(router, chat(), headers=[("traceparent", "nonsense"), ("tracestate", "a=1")])
                await ask(router, chat(), headers=[("traceparent", SAMPLED), ("traceparent", SAMPLED)])
        servers, clients = receiver.of_kind("server"), receiver.of_kind("client")
    assert [server.parent for server in servers] == ["", "", ""]
    assert len({TRACE, *(server.trace for server in servers)}) == 4
    assert [request.header("traceparent") for request in backend.work] == [
        f"00-{client.trace}-{client.id}-01" for client in clients
    ]
    assert [request.header("tracestate") for request in backend.work] == [None, None, None]


async def test_what_the_sender_does_not_record_is_not_recorded_but_goes_on() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url) as router:
                await ask(router, chat(), headers=[("traceparent", UNSAMPLED), ("tracestate", "a=1")])
        assert receiver.requests == []
    (sent,) = backend.work
    begin, _, end = str(sent.header("traceparent")).partition(SPAN)
    assert not end  # another span is the parent now
    assert begin.startswith(f"00-{TRACE}-")
    assert begin.endswith("-00")
    assert sent.header("tracestate") == "a=1"


async def test_a_sample_is_of_the_traces_that_begin_here() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url, tracing={"sample_ratio": 0}) as router:
                await ask(router, chat())
                await ask(router, chat(), headers=[("traceparent", SAMPLED)])
        assert [server.trace for server in receiver.of_kind("server")] == [TRACE]
    assert [str(request.header("traceparent"))[-3:] for request in backend.work] == ["-00", "-01"]


async def test_without_tracing_headers_go_through_as_they_came() -> None:
    async with ScriptedBackend(answering(ANSWER)) as backend:
        async with running_router(backend.url) as router:
            headers = [("TraceParent", "what ever"), ("TRACESTATE", " a = 1"), ("tracestate", "")]
            await ask(router, chat(), headers=headers)
            assert router._spans not in router._observer._observers
    (sent,) = backend.work
    came = [(name, value) for name, value in sent.headers if name.lower().startswith(b"trace")]
    assert came == [(b"TraceParent", b"what ever"), (b"TRACESTATE", b"a = 1"), (b"tracestate", b"")]


async def test_a_stream_shows_when_its_first_token_came() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(streaming) as backend, tracing(receiver, backend.url) as router:
            await ask(router, chat(stream=True))
        server = only(receiver.of_kind("server"))
    assert server.attributes["gen_ai.request.stream"] is True
    assert server.attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert server.attributes["gen_ai.usage.output_tokens"] == 7
    first_byte, first_token = (server.events[f"prefix_router.first_{what}"] for what in ("byte", "token"))
    assert server.began_ns <= first_byte <= first_token <= server.ended_ns


async def test_each_attempt_is_a_span_and_the_parent_of_what_its_backend_does() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(b"{}", 503)) as full, ScriptedBackend(answering(ANSWER)) as free:
            order = {"strategy": "round_robin"}
            async with tracing(receiver, full.url, free.url, routing=order) as router:
                assert (await ask(router, chat())).status == 200
        retried = only(receiver.of_kind("server"))
        first, second = receiver.of_kind("client")
    assert not retried.failed
    assert first.parent == second.parent == retried.id
    assert retried.attributes["prefix_router.attempts"] == 2
    assert retried.attributes["prefix_router.retry_causes"] == ["back_pressure"]
    assert retried.attributes["prefix_router.backend"] == "b"
    assert first.failed
    assert first.attributes["error.type"] == "back_pressure"
    assert first.attributes["http.response.status_code"] == 503
    assert first.attributes["prefix_router.backend"] == "a"
    assert not second.failed
    assert second.attributes["http.request.resend_count"] == 1
    assert second.began_ns >= first.ended_ns
    assert [request.header("traceparent") for request in (*full.work, *free.work)] == [
        f"00-{retried.trace}-{span.id}-01" for span in (first, second)
    ]


async def test_an_error_of_a_backend_is_one_and_a_mistake_of_a_client_is_none() -> None:
    async def script(conversation: Conversation) -> None:
        statuses = iter((500, 404))
        while await conversation.request() is not None:
            await conversation.respond(next(statuses))

    with otlp_receiver() as receiver:
        async with ScriptedBackend(script) as backend, tracing(receiver, backend.url) as router:
            assert (await ask(router, chat())).status == 500
            assert (await ask(router, chat())).status == 404
        (failed, wrong), clients = receiver.of_kind("server"), receiver.of_kind("client")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "500")
    assert (wrong.failed, wrong.attributes.get("error.type")) == (False, None)
    assert [(client.failed, client.attributes["error.type"]) for client in clients] == [
        (True, "500"),
        (True, "404"),
    ]


async def test_a_request_that_no_backend_answers() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(playing(None)) as backend, tracing(receiver, backend.url) as router:
            assert (await ask(router, chat(), headers=[("traceparent", SAMPLED)])).status == 502
        server, client = only(receiver.of_kind("server")), only(receiver.of_kind("client"))
    assert server.failed
    assert server.attributes["error.type"] == "backend_unreachable"
    assert server.attributes["prefix_router.outcome"] == "upstream_failed"
    assert client.failed
    assert client.attributes["error.type"] == "reset"
    assert "http.response.status_code" not in client.attributes


async def test_an_answer_that_breaks_off_is_an_error_although_its_status_was_200() -> None:
    async def script(conversation: Conversation) -> None:
        if await conversation.request() is not None:
            await conversation.start_stream()
            await conversation.chunk(STREAM[0])

    with otlp_receiver() as receiver:
        async with ScriptedBackend(script) as backend, tracing(receiver, backend.url) as router:
            assert not (await ask(router, chat(stream=True))).complete
        server, client = only(receiver.of_kind("server")), only(receiver.of_kind("client"))
    for span in (server, client):
        assert span.failed
        assert span.attributes["http.response.status_code"] == 200
        assert span.attributes["error.type"] == "truncated"


async def test_a_client_that_leaves_is_no_error() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(STREAM[0])
        await conversation.client_gone()

    with otlp_receiver() as receiver:
        async with ScriptedBackend(script) as backend, tracing(receiver, backend.url) as router:
            reader, writer = await connect(router)
            writer.write(request_bytes(chat(stream=True)))
            await reader.readuntil(b"one")
            writer.close()
            await until(lambda: router.active == 0)
        server, client = only(receiver.of_kind("server")), only(receiver.of_kind("client"))
    assert server.attributes["prefix_router.outcome"] == "client_disconnected"
    assert not server.failed
    assert not client.failed
    assert client.ended_ns > client.began_ns


async def test_what_the_router_answers_itself_has_no_attempt() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering()) as backend, tracing(receiver, backend.url) as router:
            await ask(router, b"{}", "/somewhere/secret", method="PROPFIND")
            assert (await ask(router, chat(), headers=[("upgrade", "websocket")])).status == 501
        strange, refused = receiver.of_kind("server")
        assert len(receiver.of_kind("client")) == 1
    assert strange.name == "HTTP"
    assert strange.attributes["http.request.method"] == "_OTHER"
    assert strange.attributes["http.request.method_original"] == "PROPFIND"
    assert "http.route" not in strange.attributes
    assert refused.failed
    assert refused.attributes["error.type"] == "not_implemented"


async def test_several_workers_send_through_their_pool(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            settings = {"endpoint": receiver.url}
            async with workers(tmp_path, backend.url, tracing=settings) as pool:
                for _ in range(8):
                    assert (await pool.ask(SECRET)).status == 200
                await eventually(lambda: pool.metric("trace_spans_sent_total"), lambda sent: sent == 16)
                assert await pool.metric("trace_spans_dropped_total") == 0
        servers, clients = receiver.of_kind("server"), receiver.of_kind("client")
    assert len({server.trace for server in servers}) == 8
    assert {client.parent for client in clients} == {server.id for server in servers}
    sent = {str(request.header("traceparent")) for request in backend.work}
    assert sent == {f"00-{client.trace}-{client.id}-01" for client in clients}


async def test_a_reload_turns_tracing_on_and_off() -> None:
    with otlp_receiver() as first, otlp_receiver() as second:
        async with ScriptedBackend(answering(ANSWER)) as backend, running_router(backend.url) as router:
            await ask(router, chat())
            for receiver in (first, second):
                report = await router.reload(settings_for([backend.url], tracing={"endpoint": receiver.url}))
                assert not report.needs_restart
                await ask(router, chat())
            await router.reload(settings_for([backend.url]))
            await ask(router, chat())
        assert [len(receiver.spans) for receiver in (first, second)] == [2, 2]
    assert [request.header("traceparent") is not None for request in backend.work] == [
        False,
        True,
        True,
        False,
    ]


async def test_a_collector_that_is_down_costs_no_request_and_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "GIVE_UP_SECONDS", 0.0)
    with otlp_receiver() as gone:
        pass
    caplog.set_level(logging.INFO, "prefix_router.observe")
    async with ScriptedBackend(answering(ANSWER)) as backend:
        async with tracing(gone, backend.url) as router:
            for _ in range(3):
                assert (await ask(router, chat())).status == 200
        assert router.metrics.spans() == (0, 6)
        text = (await asyncio.to_thread(router.metrics.render)).decode()
    assert "prefix_router_trace_spans_dropped_total 6.0" in text
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "refused" in line


async def test_a_login_for_the_collector_is_sent_there_and_shown_nowhere() -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            login = {"authorization": "Bearer hush", "service_name": "router-7"}
            async with tracing(receiver, backend.url, tracing=login) as router:
                await ask(router, chat())
                status, shown = await admin(router, "/config")
        assert status == 200
        assert b"hush" not in shown
        ((path, headers),) = receiver.requests
        assert (path, headers["authorization"]) == ("/v1/traces", "Bearer hush")
        assert receiver.spans[0].resource["service.name"] == "router-7"


async def test_the_access_log_names_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as receiver:
        async with ScriptedBackend(answering(ANSWER)) as backend:
            async with tracing(receiver, backend.url, logging={"access": True}) as router:
                await ask(router, chat(), headers=[("traceparent", UNSAMPLED)])
                await asyncio.sleep(0)
    (line,) = [record for record in caplog.records if record.name == "prefix_router.access"]
    assert line.event.trace.trace_id == TRACE  # type: ignore[attr-defined]
