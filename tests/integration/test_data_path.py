"""What goes through the router, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import cast

import pytest

from prefix_router.observe.events import Outcome
from tests.support.router import ask, chat, connect, read_answer, request_bytes, running_router, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering, playing

BODY = (
    b'{"messages": [ {"role":"user", "content":"h\\u00e9llo"} ],\n'
    b' "chat_template_kwargs":{"x":null}, "unknown": 1e3}'
)


async def test_the_clients_own_bytes_go_upstream() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        answer = await ask(
            router,
            BODY,
            "/v1/chat/completions?a=%2F&b=%C3%A9",
            headers=[
                ("Content-Type", "application/json"),
                ("Authorization", "Bearer \xe9"),
                ("X-Custom", "1"),
            ],
        )
        (request,) = backend.work
    assert answer.status == 200
    assert request.body == BODY
    assert (request.method, request.target) == ("POST", "/v1/chat/completions?a=%2F&b=%C3%A9")
    assert request.header("authorization") == "Bearer \xe9"
    assert request.header("x-custom") == "1"
    assert request.header_values("host") == [backend.url.removeprefix("http://")]
    assert request.header_values("accept-encoding") == []
    assert request.header_values("user-agent") == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "POST", "PROPFIND"])
async def test_any_method_and_path_pass(method: str) -> None:
    async with ScriptedBackend(answering(b"done")) as backend, running_router(backend.url) as router:
        answer = await ask(router, b"", "/any//thing/?x", method=method)
        assert (answer.status, answer.body) == (200, b"done")
        assert (backend.work[0].method, backend.work[0].target) == (method, "/any//thing/?x")


async def test_the_response_comes_back_as_it_was() -> None:
    headers = [
        ("Date", "then"),
        ("Server", "uvicorn"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("X-E", "\xe9"),
    ]
    async with (
        ScriptedBackend(answering(b'{"b":  1}', 207, *headers)) as backend,
        running_router(backend.url) as router,
    ):
        answer = await ask(router, chat())
    assert (answer.status, answer.body) == (207, b'{"b":  1}')
    assert answer.header_values("date") == ["then"]
    assert answer.header_values("server") == ["uvicorn"]
    assert answer.header_values("set-cookie") == ["a=1", "b=2"]
    assert answer.header_values("x-e") == ["\xe9"]
    assert answer.header_values("content-length") == ["9"]
    assert answer.header_values("transfer-encoding") == []


async def test_compressed_bodies_stay_compressed() -> None:
    packed = gzip.compress(b"{}")
    script = answering(packed, 200, ("Content-Encoding", "gzip"))
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answer = await ask(router, packed, headers=[("Content-Encoding", "gzip"), ("Accept-Encoding", "br")])
        assert backend.work[0].body == packed
        assert backend.work[0].header("content-encoding") == "gzip"
        assert backend.work[0].header_values("accept-encoding") == ["br"]
    assert answer.body == packed
    assert answer.header("content-encoding") == "gzip"


@pytest.mark.parametrize(
    ("wire", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", 304, b""),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", 404, b"nope"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", 500, b"oops"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", 200, b""),
    ],
)
async def test_every_status_passes(wire: bytes, status: int, body: bytes) -> None:
    async with ScriptedBackend(playing(wire)) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat())
        assert len(backend.work) == 1
    assert (answer.status, answer.body, answer.complete) == (status, body, True)


async def test_head_is_answered_with_a_length_and_no_body() -> None:
    script = playing(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answer = await ask(router, b"", "/x", method="HEAD")
    assert (answer.status, answer.header("content-length"), answer.body) == (200, "7", b"")


async def test_a_stream_arrives_chunk_by_chunk() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        for step, event in zip(steps, events, strict=True):
            await step.wait()
            await conversation.chunk(event)
        await conversation.chunk(b"")
        await conversation.client_gone()

    events = [b"data: {}\n\n", b": keep-alive\n\n", b"data: [DO", b"NE]\n\n"]
    steps = [asyncio.Event() for _ in events]
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat(stream=True)))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert b"content-length" not in head.lower()
        for step, event in zip(steps, events, strict=True):
            step.set()
            assert await reader.readuntil(b"\r\n") == b"%x\r\n" % len(event)
            assert await reader.readexactly(len(event) + 2) == event + b"\r\n"
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.close()


async def test_an_answer_that_is_not_a_stream_keeps_its_type_for_a_streaming_request() -> None:
    script = answering(b'{"error":{}}', 400)
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat(stream=True))
    assert (answer.status, answer.header("content-type"), answer.body) == (
        400,
        "application/json",
        b'{"error":{}}',
    )


async def test_a_body_that_ends_by_closing_becomes_chunked() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.0 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n\x00\xff\r\n")

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat())
    assert (answer.body, answer.complete) == (b"\x00\xff\r\n", True)
    assert answer.header("content-type") == "audio/mpeg"


async def test_an_http_1_0_client_gets_its_body_until_close() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(b"one")
        await conversation.chunk(b"two")
        await conversation.chunk(b"")

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        answer = await ask(router, chat(), version="1.0")
    assert answer.header("transfer-encoding") is None
    assert answer.header("connection") == "close"
    assert answer.body == b"onetwo"


async def test_a_chunked_request_body_arrives_whole_with_one_framing() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b'8\r\n{"prompt\r\n6\r\n":"x"}\r\n0\r\n\r\n')
        answer = await read_answer(reader)
        writer.close()
        (request,) = backend.work
    assert answer.status == 200
    assert request.body == b'{"prompt":"x"}'
    assert request.header_values("content-length") == ["14"]
    assert request.header_values("transfer-encoding") == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_multipart_is_passed_on_as_it_comes(framing: str) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.reader.readuntil(b"\r\n\r\n")
        head_arrived.set()
        await conversation.reader.readuntil(b"--end--")
        await conversation.respond(200, b"heard")

    head_arrived = asyncio.Event()
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        start = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n"
        start += b"Content-Type: multipart/form-data; boundary=end\r\n"
        if framing == "length":
            writer.write(start + b"Content-Length: 11\r\n\r\nabcd")
            await asyncio.wait_for(head_arrived.wait(), 5)
            writer.write(b"--end--")
        else:
            writer.write(start + b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n")
            await asyncio.wait_for(head_arrived.wait(), 5)
            writer.write(b"7\r\n--end--\r\n0\r\n\r\n")
        answer = await asyncio.wait_for(read_answer(reader), 5)
        writer.close()
    assert (answer.status, answer.body) == (200, b"heard")
    assert answer.header("x-prefix-router-reason") == "keyless"


async def test_a_client_that_waits_for_100_is_told_to_go_on() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        head, _, body = request_bytes(chat(), headers=[("Expect", "100-continue")]).partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert (await read_answer(reader)).status == 100
        writer.write(body)
        assert (await read_answer(reader)).status == 200
        assert backend.work[0].header("expect") is None
        writer.close()


async def test_connections_are_kept_on_both_sides() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        for number in range(5):
            writer.write(request_bytes(chat(str(number))))
            assert (await read_answer(reader)).status == 200
        writer.close()
        # one connection for requests, one for the probe
        assert len(backend.conversations) == 2


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(conversation: Conversation) -> None:
        while (request := await conversation.request()) is not None:
            await conversation.respond(200, request.body)

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(b"".join(request_bytes(chat(str(number))) for number in range(4)))
        bodies = [(await read_answer(reader)).json() for _ in range(4)]
        writer.close()
    assert [body["messages"][0]["content"] for body in bodies] == ["0", "1", "2", "3"]


async def test_a_path_prefix_and_ipv6_backends_work() -> None:
    async with ScriptedBackend(answering(), host="::1") as backend:
        async with running_router(backend.url + "/models/one/") as router:
            answer = await ask(router, chat())
        assert backend.work[-1].target == "/models/one/v1/chat/completions"
        assert backend.work[-1].header("host") == f"[::1]:{backend.port}"
    assert answer.status == 200


@pytest.mark.parametrize("prefix", ["", "/team-a"])
async def test_no_path_leaves_the_prefix_of_a_backend(prefix: str) -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url + prefix) as router:
        answer = await ask(router, b"", "/v1/../../team-b/x", method="GET")
        reached = [request.target for request in backend.work if "team-b" in request.target]
    if prefix:
        assert (answer.status, reached) == (400, [])
    else:
        assert (answer.status, reached) == (200, ["/v1/../../team-b/x"])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_byte_ends_the_backends_work(stream: bool) -> None:
    async def script(conversation: Conversation) -> None:
        if (request := await conversation.request()) is not None and request.method == "POST":
            await conversation.client_gone()

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        _, writer = await connect(router)
        writer.write(request_bytes(chat(stream=stream)))
        await until(lambda: backend.work)
        assert router.store.fleet.members[0].in_flight.count == 1
        writer.close()
        await until(lambda: any(c.gone.is_set() for c in backend.conversations), 1.0)
        await until(lambda: router.active == 0)
        assert router.totals.by_outcome[Outcome.CLIENT_DISCONNECTED] == 1


async def test_a_client_that_leaves_during_a_stream_ends_the_backends_work() -> None:
    async def script(conversation: Conversation) -> None:
        if (request := await conversation.request()) is not None and request.method == "POST":
            await conversation.start_stream()
            await conversation.chunk(b"data: {}\n\n")
            await conversation.client_gone()

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat(stream=True)))
        await reader.readuntil(b"data: {}")
        writer.transport.abort()
        await until(lambda: any(c.gone.is_set() for c in backend.conversations), 1.0)
        await until(lambda: router.active == 0)


async def test_leaving_after_the_last_event_counts_as_success() -> None:
    async def script(conversation: Conversation) -> None:
        if (request := await conversation.request()) is not None and request.method == "POST":
            await conversation.start_stream()
            await conversation.chunk(b"data: [DONE]\n\n")
            await conversation.client_gone()

    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(request_bytes(chat(stream=True)))
        await reader.readuntil(b"[DONE]\n\n")
        writer.close()
        await until(lambda: router.active == 0)
        assert router.totals.by_outcome == {Outcome.COMPLETED: 1}


async def test_a_slow_reader_slows_its_backend_and_gets_everything() -> None:
    async def script(conversation: Conversation) -> None:
        if (request := await conversation.request()) is None or request.method != "POST":
            return
        await conversation.start_stream("application/octet-stream")
        for _ in range(pieces):
            await conversation.chunk(b"x" * 65536)
            sent.append(1)
        await conversation.chunk(b"")

    pieces = 1024  # 64 MiB
    sent: list[int] = []
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        cast(asyncio.Transport, writer.transport).pause_reading()
        writer.write(request_bytes(chat()))
        await until(lambda: len(sent) > 10)
        while True:  # until nothing moves any more
            before = len(sent)
            await asyncio.sleep(0.1)
            if len(sent) == before:
                break
        assert len(sent) < pieces / 2
        cast(asyncio.Transport, writer.transport).resume_reading()
        answer = await asyncio.wait_for(read_answer(reader), 30)
        writer.close()
    assert (len(answer.body), answer.complete) == (pieces * 65536, True)


async def test_cookies_of_one_client_are_never_sent_for_another() -> None:
    script = answering(b"{}", 200, ("Set-Cookie", "session=secret"))
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        await ask(router, chat())
        await ask(router, chat())
        assert [request.header("cookie") for request in backend.work] == [None, None]


async def test_the_usage_of_a_response_is_counted() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
    script = answering(json.dumps({"choices": [], "usage": usage}).encode())
    async with ScriptedBackend(script) as backend, running_router(backend.url) as router:
        await ask(router, chat())
        assert (router.totals.prompt_tokens, router.totals.cached_tokens) == (100, 64)
