"""Bodies of megabytes through a whole router: they arrive as they were, at the home of their conversation."""

from __future__ import annotations

import json

from prefix_router.observe.events import Outcome
from prefix_router.openai_api.condense import LARGE_BYTES
from prefix_router.proxy.blocks import BLOCK_BYTES
from tests.support.router import ask, chat, connect, read_answer, request_bytes, running_router, until
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering


def conversation(number: int, turns: int) -> bytes:
    """A chat that grows by 30 KB with each turn; its model comes last."""
    messages = [{"role": "user", "content": f"question {number}"}]
    messages += [{"role": "assistant", "content": f"answer {turn} " * 2500} for turn in range(turns)]
    return json.dumps({"messages": messages, "model": "m"}).encode()


async def test_a_conversation_stays_at_its_home_when_it_grows() -> None:
    sizes = [len(conversation(0, turns)) for turns in (0, 3, 30)]
    assert sizes[0] < LARGE_BYTES < sizes[1] < BLOCK_BYTES < sizes[2]
    async with ScriptedBackend(answering()) as a, ScriptedBackend(answering()) as b:
        async with running_router(a.url, b.url) as router:
            homes = set()
            for number in range(6):
                answers = [await ask(router, conversation(number, turns)) for turns in (0, 3, 30)]
                assert {answer.header("x-prefix-router-reason") for answer in answers} == {"affinity"}
                (home,) = {answer.header("x-prefix-router-backend") for answer in answers}
                homes.add(home)
    assert homes == {"a", "b"}


async def test_a_large_body_arrives_as_it_was_sent() -> None:
    body = conversation(1, 100)
    assert len(body) > 9 * BLOCK_BYTES
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        answer = await ask(router, body)
        (request,) = backend.work
    assert answer.status == 200
    assert request.body == body
    assert request.header_values("content-length") == [str(len(body))]


async def test_a_large_body_in_chunks_arrives_with_a_length() -> None:
    body = conversation(1, 30)
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        reader, writer = await connect(router)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 50_000):
            piece = body[at : at + 50_000]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        answer = await read_answer(reader)
        writer.close()
        (request,) = backend.work
    assert answer.status == 200
    assert request.body == body
    assert request.header_values("content-length") == [str(len(body))]


async def test_a_large_body_is_sent_again_to_another_backend() -> None:
    async def refuse(connection: Conversation) -> None:
        while await connection.request() is not None:
            await connection.respond(503)

    body = conversation(1, 30)
    async with ScriptedBackend(refuse) as full, ScriptedBackend(answering()) as free:
        async with running_router(full.url, free.url) as router:
            answers = [await ask(router, conversation(number, 30)) for number in range(6)]
            assert {answer.status for answer in answers} == {200}
    assert len(full.work) > 0
    assert {request.body for request in full.work} <= {request.body for request in free.work}
    assert body in {request.body for request in free.work}


async def test_a_backend_that_answers_before_it_has_the_whole_body_is_heard() -> None:
    async def hasty(connection: Conversation) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.respond(413, b"too much for me")
        await connection.client_gone()

    async with ScriptedBackend(hasty) as backend, running_router(backend.url) as router:
        answer = await ask(router, conversation(1, 500))
        assert (answer.status, answer.body) == (413, b"too much for me")
        assert (await ask(router, chat())).status == 413


async def test_a_client_that_leaves_in_the_middle_of_a_large_body_leaves_nothing() -> None:
    async with ScriptedBackend(answering()) as backend, running_router(backend.url) as router:
        _, writer = await connect(router)
        sent = request_bytes(conversation(1, 100))
        writer.write(sent[: len(sent) // 2])
        await until(lambda: router.active == 1)
        writer.transport.abort()
        await until(lambda: router.active == 0)
        assert router.totals.by_outcome[Outcome.CLIENT_DISCONNECTED] == 1
        assert backend.work == []
