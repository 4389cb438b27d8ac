"""What a client sees when something breaks, and what the fleet learns from it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

import pytest

from prefix_router.observe.events import Outcome
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.health import HealthEvent
from tests.support.router import (
    RawAnswer,
    ask,
    chat,
    connect,
    read_answer,
    request_bytes,
    running_router,
    until,
)
from tests.support.scripted_backend import Conversation, Script, ScriptedBackend, answering


def closed_port_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def on_post(script: Script) -> Script:
    """Play `script` for a POST; answer everything else, like a healthy backend."""

    async def whole(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST":
                await script(conversation)
                return
            await conversation.respond()

    return whole


async def close(conversation: Conversation) -> None:
    """End without an answer."""


async def reset(conversation: Conversation) -> None:
    conversation.reset()


async def garbage(conversation: Conversation) -> None:
    await conversation.send(b"\x00\x01 this is not HTTP\r\n\r\n")


async def half_head(conversation: Conversation) -> None:
    await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Ty")


async def silence(conversation: Conversation) -> None:
    await conversation.client_gone()


def error_code(answer: RawAnswer) -> str:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["code"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", [close, reset], ids=lambda fault: fault.__name__)
async def test_a_backend_that_dies_before_the_first_byte_costs_nothing(fault: Script, stream: bool) -> None:
    async with ScriptedBackend(on_post(fault)) as bad, ScriptedBackend(answering(b"good")) as good:
        async with running_router(bad.url, good.url) as router:
            answers = [await ask(router, chat(str(number), stream=stream)) for number in range(12)]
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"good")}
    assert {answer.header("x-prefix-router-reason") for answer in answers} == {"affinity", "failover"}


@pytest.mark.parametrize("fault", [garbage, half_head], ids=lambda fault: fault.__name__)
async def test_a_backend_that_has_begun_to_answer_is_not_replaced_by_another(fault: Script) -> None:
    async with ScriptedBackend(on_post(fault)) as one, ScriptedBackend(on_post(fault)) as two:
        async with running_router(one.url, two.url) as router:
            answer = await ask(router, chat())
        assert len(one.work + two.work) == 1
    assert answer.status == 502
    assert error_code(answer) == "backend_bad_response"


async def test_a_refused_connection_goes_to_the_next_backend_and_takes_the_dead_one_out() -> None:
    async with ScriptedBackend(answering(b"good")) as good:
        async with running_router(closed_port_url(), good.url) as router:
            answers = [await ask(router, chat(str(number))) for number in range(12)]
            assert router.store.fleet.members[0].state is BackendState.DOWN
    assert {answer.body for answer in answers} == {b"good"}


async def test_a_post_that_may_not_be_done_twice_is_not_sent_twice() -> None:
    async with ScriptedBackend(on_post(close)) as one, ScriptedBackend(on_post(close)) as two:
        async with running_router(one.url, two.url) as router:
            answer = await ask(router, b"{}", "/v1/load_lora_adapter")
        posts = one.work + two.work
    assert answer.status == 502
    assert error_code(answer) == "backend_unreachable"
    assert len(posts) == 1


async def test_a_dead_reused_connection_is_replaced_without_trying_another_backend() -> None:
    served: list[int] = []

    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST" and conversation.number in served:
                return  # closes exactly when the connection is used again
            served.append(conversation.number)
            await conversation.respond(200, b"ok")

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answers = [await ask(router, chat(str(number))) for number in range(4)]
        assert router.store.fleet.members[0].state is not BackendState.DOWN
        assert router.totals.retries == 3
    assert {answer.status for answer in answers} == {200}


async def test_nobody_left_is_502_with_the_cause() -> None:
    async with ScriptedBackend(on_post(close)) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat())
    assert answer.status == 502
    assert error_code(answer) == "backend_unreachable"
    assert answer.header("x-request-id")


async def test_no_more_backends_are_tried_than_allowed() -> None:
    bad = [ScriptedBackend(on_post(close)) for _ in range(4)]
    for backend in bad:
        await backend.start()
    async with running_router(*(backend.url for backend in bad), retry={"max_attempts": 2}) as router:
        answer = await ask(router, chat())
    posts = [request for backend in bad for request in backend.work]
    for backend in bad:
        await backend.stop()
    assert answer.status == 502
    assert len(posts) == 2


async def test_a_backend_that_never_answers_is_504_and_not_repeated() -> None:
    async with ScriptedBackend(on_post(silence)) as one, ScriptedBackend(on_post(silence)) as two:
        async with running_router(one.url, two.url, timeouts={"first_byte_seconds": 0.2}) as router:
            answer = await ask(router, chat())
        posts = one.work + two.work
    assert answer.status == 504
    assert error_code(answer) == "backend_timeout"
    assert len(posts) == 1


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\npartial\r\nxyz\r\n",
    ],
    ids=["length", "chunked", "broken-chunk"],
)
async def test_a_response_that_breaks_off_is_broken_off(wire: bytes, version: str) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.send(wire)

    async with ScriptedBackend(on_post(script)) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat(), version=version))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        rest = b""
        clean_end = True
        try:
            while piece := await reader.read(1000):
                rest += piece
        except ConnectionError:
            clean_end = False
        writer.close()
        await until(lambda: router.active == 0)
        assert router.totals.by_outcome == {Outcome.UPSTREAM_TRUNCATED: 1}
    if version == "1.0" and b"ontent-Length" not in head:
        assert not clean_end
    assert b"0\r\n\r\n" not in rest
    assert b"error" not in rest


async def test_a_silent_stream_is_broken_off() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.start_stream()
        await conversation.chunk(b"data: {}\n\n")
        await conversation.client_gone()

    async with ScriptedBackend(on_post(script)) as backend:
        async with running_router(backend.url, timeouts={"idle_seconds": 0.2}) as router:
            answer = await ask(router, chat(stream=True))
    assert (answer.status, answer.complete) == (200, False)


@pytest.mark.parametrize("status", [503, 429])
async def test_back_pressure_is_answered_elsewhere_and_does_not_eject(status: int) -> None:
    full = answering(b"full", status, ("Retry-After", "7"))
    async with ScriptedBackend(full) as busy, ScriptedBackend(answering(b"good")) as free:
        async with running_router(busy.url, free.url) as router:
            await until(lambda: router.not_ready() is None)
            before = router.store.fleet.members[0].state
            answers = [await ask(router, chat(str(number))) for number in range(20)]
            assert router.store.fleet.members[0].state is before
    assert {answer.body for answer in answers} == {b"good"}
    assert {answer.header("x-prefix-router-reason") for answer in answers} == {"affinity", "overflow"}


async def test_when_everybody_is_full_the_backends_own_answer_is_given() -> None:
    full = answering(b'{"error":"queue full"}', 503, ("Retry-After", "7"))
    async with ScriptedBackend(full) as one, ScriptedBackend(full) as two:
        async with running_router(one.url, two.url) as router:
            answer = await ask(router, chat())
    assert (answer.status, answer.body) == (503, b'{"error":"queue full"}')
    assert answer.header("retry-after") == "7"


async def test_failing_requests_eject_one_backend_but_never_the_fleet() -> None:
    broken = answering(b"oops", 500)
    async with ScriptedBackend(broken) as one, ScriptedBackend(broken) as two:
        async with running_router(one.url, two.url) as router:
            for number in range(40):
                assert (await ask(router, chat(str(number)))).status == 500
            states = [member.state for member in router.store.fleet.members]
    assert states.count(BackendState.EJECTED) == 1


async def test_the_clients_own_mistakes_never_count_against_a_backend() -> None:
    async with ScriptedBackend(answering(b"bad", 400)) as backend, running_router(backend.url) as router:
        for number in range(20):
            assert (await ask(router, chat(str(number)))).status == 400
        assert router.store.fleet.members[0].state is BackendState.HEALTHY


async def test_without_a_routable_backend_there_is_503_at_once_and_probing_goes_on() -> None:
    async with ScriptedBackend(answering(b"good")) as backend:
        async with running_router(backend.url, health={"interval_seconds": 0.05}) as router:
            await until(lambda: router.not_ready() is None)
            await backend.stop()
            await until(lambda: router.store.fleet.members[0].state is BackendState.DOWN)
            answer = await ask(router, chat())
            assert answer.status == 503
            assert error_code(answer) == "no_backend_available"
            assert answer.header("retry-after") == "1"
            assert "1 down" in answer.json()["error"]["message"]
            assert (await ask(router, b"", "/health", method="GET")).status == 503
            await backend.start()
            await until(lambda: router.store.fleet.members[0].state is BackendState.HEALTHY)
            assert (await ask(router, chat())).body == b"good"
            assert (await ask(router, b"", "/health", method="GET")).status == 200


async def test_a_slow_probe_is_not_death() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.target == "/health":
                probes.append(1)
                await conversation.client_gone()
                return
            await conversation.respond(200, b"busy but well")

    probes: list[int] = []
    health = {"interval_seconds": 0.02, "timeout_seconds": 0.05, "probe_failures": 100}
    async with ScriptedBackend(script) as backend, running_router(backend.url, health=health) as router:
        await until(lambda: len(probes) >= 3)
        assert (await ask(router, chat())).body == b"busy but well"
        assert router.store.fleet.members[0].state is BackendState.HEALTHY


async def test_a_body_over_the_limit_is_413_naming_the_limit() -> None:
    async with ScriptedBackend(answering()) as backend:
        async with running_router(backend.url, limits={"max_body_bytes": 2000}) as router:
            fits = await ask(router, b"x" * 2000)
            declared = await ask(router, b"x" * 2001)
            reader, writer = await connect(router)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"7d0\r\n" + b"x" * 2000 + b"\r\n1\r\nx\r\n0\r\n\r\n")
            chunked = await read_answer(reader)
            assert await reader.read() == b""
            writer.close()
            upload = await ask(router, b"x" * 2001, headers=[("Content-Type", "audio/wav")])
            expecting = await ask(router, b"x" * 2001, headers=[("Expect", "100-continue")])
            assert len(backend.work) == 1
    assert fits.status == 200
    for answer in (declared, chunked, upload, expecting):
        assert answer.status == 413
        assert error_code(answer) == "request_too_large"
        assert "limits.max_body_bytes = 2000" in answer.json()["error"]["message"]
        assert answer.header("connection") == "close"


@pytest.mark.parametrize(
    "wire",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\nContent-Length: 0\n\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /old\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=[
        "both-framings",
        "two-lengths",
        "signed-length",
        "chunked-not-last",
        "space-before-colon",
        "bad-chunk",
        "folded-header",
        "bare-newlines",
        "version",
        "http/0.9",
        "tls-hello",
    ],
)
async def test_broken_framing_is_400_and_close(wire: bytes) -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(wire)
        answer = await asyncio.wait_for(read_answer(reader), 5)
        assert answer.status == 400
        assert error_code(answer) == "bad_request"
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert not backend.work


async def test_an_endless_header_is_431_and_close() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        answer = await ask(router, b"", "/x", method="GET", headers=[("X-Big", "x" * 40_000)])
    assert answer.status == 431
    assert error_code(answer) == "header_too_large"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b'{"messages": null}',
        b'{"messages": "text"}',
        b'{"messages": [1, null, {}]}',
        b'{"model": 3, "messages": [{"role": null, "content": {"a": []}}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"prompt": [[]]}',
        b"[" * 100_000,
        b'{"messages": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/tokenize",
    ],
)
async def test_odd_bodies_go_through_untouched(body: bytes, path: str) -> None:
    async with (
        ScriptedBackend(answering(b"vllm says no", 400)) as backend,
        running_router(backend.url) as router,
    ):
        answer = await ask(router, body, path)
        (request,) = backend.work
    assert (answer.status, answer.body) == (400, b"vllm says no")
    assert request.body == body


async def test_a_client_that_stops_sending_its_body_is_told_so() -> None:
    async with ScriptedBackend(answering()) as backend:
        async with running_router(backend.url, timeouts={"idle_seconds": 0.2}) as router:
            reader, writer = await connect(router)
            writer.write(request_bytes(b"x" * 100)[:-50])
            answer = await asyncio.wait_for(read_answer(reader), 5)
            writer.close()
    assert answer.status == 408
    assert error_code(answer) == "request_timeout"


async def test_protocol_upgrades_are_refused_not_hung() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        upgrade = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Key", "x" * 22 + "=="),
        ]
        answer = await ask(router, b"", "/v1/realtime", method="GET", headers=upgrade)
    assert answer.status == 501
    assert error_code(answer) == "not_implemented"


async def test_nothing_is_read_behind_a_refused_tunnel() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(
            b"CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = await asyncio.wait_for(read_answer(reader), 5)
        assert (answer.status, answer.header("connection")) == (501, "close")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert backend.work == []


async def test_errors_on_the_messages_api_have_its_shape() -> None:
    async with ScriptedBackend(on_post(close)) as backend, running_router(backend.url) as router:
        answer = await ask(
            router, {"model": "m", "messages": [{"role": "user", "content": "x"}]}, "/v1/messages"
        )
    assert answer.status == 502
    assert answer.json()["type"] == "error"
    assert set(answer.json()["error"]) == {"type", "message"}


async def test_a_thousand_aborted_requests_leave_no_count_behind() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST":
                await conversation.client_gone()
                return
            await conversation.respond()

    async with ScriptedBackend(script) as one, ScriptedBackend(script) as two:
        async with running_router(one.url, two.url) as router:
            for _ in range(20):
                connections = [await connect(router) for _ in range(50)]
                for number, (_, writer) in enumerate(connections):
                    writer.write(request_bytes(chat(str(number), stream=number % 2 == 0)))
                await until(lambda: router.active == 50)
                for _, writer in connections:
                    writer.transport.abort()
                await until(lambda: router.active == 0)
                assert [member.in_flight.count for member in router.store.fleet.members] == [0, 0]
            assert router.totals.by_outcome[Outcome.CLIENT_DISCONNECTED] == 1000
            assert {member.state for member in router.store.fleet.members} == {BackendState.HEALTHY}


@pytest.mark.parametrize("silent", [True, False])
async def test_a_backend_that_breaks_every_stream_is_ejected_though_its_heads_look_good(silent: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.start_stream()
        await conversation.chunk(b"data: {}\n\n")
        if silent:
            await conversation.client_gone()

    async with ScriptedBackend(on_post(script)) as bad, ScriptedBackend(answering(b"good")) as good:
        timeouts = {"idle_seconds": 0.05}
        async with running_router(bad.url, good.url, timeouts=timeouts) as router:
            for number in range(40):
                await ask(router, chat(str(number), stream=True))
            states = [member.state for member in router.store.fleet.members]
    assert states == [BackendState.EJECTED, BackendState.HEALTHY]


async def test_one_poisonous_prompt_takes_no_backend_out() -> None:
    async with ScriptedBackend(answering(b"oops", 500)) as one, ScriptedBackend(answering(b"ok")) as two:
        async with running_router(one.url, two.url) as router:
            for _ in range(20):
                await ask(router, chat("poison"))
            states = {member.state for member in router.store.fleet.members}
    assert BackendState.EJECTED not in states


async def test_a_prompt_that_crashes_engines_reaches_two_of_them_at_most() -> None:
    backends = [ScriptedBackend(on_post(close)) for _ in range(4)]
    for backend in backends:
        await backend.start()
    async with running_router(*(backend.url for backend in backends), retry={"max_attempts": 4}) as router:
        assert (await ask(router, chat())).status == 502
    asked = sum(len(backend.work) for backend in backends)
    for backend in backends:
        await backend.stop()
    assert asked == 2


async def test_full_and_refused_together_mean_full() -> None:
    async with ScriptedBackend(answering(b"full", 503)) as full:
        async with running_router(full.url, closed_port_url(), models={"refresh_seconds": 0}) as router:
            answers = [await ask(router, chat(str(number))) for number in range(6)]
    assert {answer.status for answer in answers} == {503}


async def test_a_client_that_stops_reading_is_let_go_after_a_while() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.start_stream("application/octet-stream")
        with contextlib.suppress(ConnectionError):
            while True:
                await conversation.chunk(b"x" * 65536)

    async with ScriptedBackend(on_post(script)) as backend:
        async with running_router(backend.url, timeouts={"client_write_seconds": 0.2}) as router:
            _, writer = await connect(router)
            cast(asyncio.Transport, writer.transport).pause_reading()
            writer.write(request_bytes(chat()))
            await until(lambda: router.active == 1)
            await until(lambda: router.active == 0)
            assert router.totals.by_outcome[Outcome.CLIENT_DISCONNECTED] == 1
            writer.close()


async def test_a_client_that_leaves_with_unread_requests_behind_it_is_noticed() -> None:
    async with ScriptedBackend(on_post(silence)) as backend, running_router(backend.url) as router:
        _, writer = await connect(router)
        writer.write(request_bytes(chat()) * 40)
        await until(lambda: len(backend.work) == 1)
        writer.transport.abort()
        await until(lambda: router.active == 0)


async def test_nothing_is_expected_on_a_connection_after_an_upgrade_was_asked_for() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat(), headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")])
    assert answer.status == 200
    assert answer.header("connection") == "close"


async def test_a_lone_backend_that_comes_back_takes_all_requests_at_once() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            if request.method == "POST":
                await release.wait()
            await conversation.respond()

    release = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        async with running_router(backend.url, health={"recovery_successes": 100}) as router:
            await until(lambda: router.not_ready() is None)
            member = router.store.fleet.members[0]
            router.store.report(member.backend, HealthEvent.UNREACHABLE)
            router.store.report(member.backend, HealthEvent.PROBE_OK)
            assert router.store.fleet.members[0].state is BackendState.HALF_OPEN
            tasks = [asyncio.create_task(ask(router, chat(str(number)))) for number in range(5)]
            await until(lambda: member.in_flight.count == 5)
            release.set()
            assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
