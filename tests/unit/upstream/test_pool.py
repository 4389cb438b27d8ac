from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.pool import Pool, Timeouts
from prefix_router.upstream.response import Response
from tests.support.scripted_backend import Conversation, ScriptedBackend, answering, playing

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


async def ask(pool: Pool, *, fresh: bool = False, method: bytes = b"POST") -> bytes:
    response: Response = await pool.send(method, HEAD, b"{}", fresh=fresh)
    body = b""
    while chunk := await response.read():
        body += chunk
    return body


async def test_a_connection_is_used_again() -> None:
    async with ScriptedBackend(answering()) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        for _ in range(3):
            await ask(pool)
        assert len(backend.conversations) == 1
        assert pool.idle_connections == 1
        pool.close()
        assert pool.idle_connections == 0


async def test_parallel_requests_each_get_a_connection() -> None:
    async with ScriptedBackend(answering()) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await asyncio.gather(*(ask(pool) for _ in range(150)))
        assert len(backend.requests) == 150
        pool.close()


async def test_fresh_never_takes_an_idle_connection() -> None:
    async with ScriptedBackend(answering()) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await ask(pool)
        await ask(pool, fresh=True)
        assert len(backend.conversations) == 2
        pool.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        OK + b"x",
    ],
    ids=["asked-to-close", "http/1.0", "second-response", "stray-byte"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    async with ScriptedBackend(playing(answer, OK)) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        try:
            assert await ask(pool) == b"hi"
        except UpstreamError as error:
            assert error.kind is ErrorKind.TRUNCATED  # noqa: PT017
        assert pool.idle_connections == 0


async def test_a_byte_on_an_idle_connection_closes_it() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK)
        await answered.wait()
        await conversation.send(b"HTTP/1.1 408 Timeout\r\n\r\n")
        await conversation.client_gone()

    answered = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await ask(pool)
        assert pool.idle_connections == 1
        answered.set()
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)
        assert pool.idle_connections == 0


async def test_the_backend_closing_an_idle_connection_removes_it() -> None:
    async with ScriptedBackend(playing(OK)) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await ask(pool)
        assert pool.idle_connections == 1
        backend.conversations[0].writer.close()
        while pool.idle_connections:
            await asyncio.sleep(0)
        assert await ask(pool) == b"hi"
        pool.close()


async def test_idle_connections_are_closed_after_the_keepalive_time() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK)
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(keepalive_seconds=0.05))
        await ask(pool)
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)
        assert pool.idle_connections == 0


async def test_without_keepalive_each_request_has_its_own_connection() -> None:
    async with ScriptedBackend(answering()) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(keepalive_seconds=0))
        await ask(pool)
        await ask(pool)
        assert len(backend.conversations) == 2


async def test_a_dead_reused_connection_says_so() -> None:
    async with ScriptedBackend(playing(OK, None)) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await ask(pool)
        with pytest.raises(UpstreamError) as caught:
            await ask(pool)
        assert caught.value.kind is ErrorKind.RESET
        assert caught.value.reused
        assert pool.idle_connections == 0


async def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pool = Pool("127.0.0.1", unused.getsockname()[1], Timeouts())
        with pytest.raises(UpstreamError) as caught:
            await ask(pool)
    assert caught.value.kind is ErrorKind.UNREACHABLE


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    pool = Pool("no-such-host.invalid", 80, Timeouts())
    with pytest.raises(UpstreamError) as caught:
        await ask(pool)
    assert caught.value.kind is ErrorKind.UNREACHABLE


async def test_a_full_backlog_is_a_connect_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        pool = Pool("127.0.0.1", listener.getsockname()[1], Timeouts(connect_seconds=0.1))
        with pytest.raises(UpstreamError) as caught:
            await ask(pool)
        for filler in fillers:
            filler.close()
    assert caught.value.kind is ErrorKind.CONNECT_FAILED


async def test_a_connection_that_comes_back_to_a_closed_pool_is_closed() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await closed.wait()
        await conversation.chunk(b"late")
        await conversation.chunk(b"")
        await conversation.client_gone()

    closed = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        pool.close()
        closed.set()
        assert await response.read() == b"late"
        assert await response.read() == b""
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)
        assert pool.idle_connections == 0


async def test_the_answer_to_head_costs_the_connection() -> None:
    async with ScriptedBackend(playing(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        assert await ask(pool, method=b"HEAD") == b""
        assert pool.idle_connections == 0
        assert len(backend.requests) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ECONNREFUSED, "x"), ErrorKind.UNREACHABLE),
        (OSError(errno.EHOSTUNREACH, "x"), ErrorKind.UNREACHABLE),
        (OSError("Multiple exceptions: refused, refused"), ErrorKind.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "x"), ErrorKind.UNREACHABLE),
        (socket.gaierror(socket.EAI_AGAIN, "x"), ErrorKind.CONNECT_FAILED),
        (OSError(errno.ETIMEDOUT, "x"), ErrorKind.CONNECT_FAILED),
        (ssl.SSLError(1, "x"), ErrorKind.CONNECT_FAILED),
        (OSError(errno.EMFILE, "x"), ErrorKind.EXHAUSTED),
        (OSError(errno.ENFILE, "x"), ErrorKind.EXHAUSTED),
        (OSError(errno.EADDRNOTAVAIL, "x"), ErrorKind.EXHAUSTED),
    ],
    ids=lambda value: type(value).__name__ + str(getattr(value, "errno", "")),
)
async def test_trouble_of_our_own_is_never_taken_for_a_dead_backend(
    error: OSError, kind: ErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", failing)
    with pytest.raises(UpstreamError) as caught:
        await ask(Pool("backend", 80, Timeouts()))
    assert caught.value.kind is kind


async def test_an_exchange_may_have_timeouts_of_its_own() -> None:
    async def silent(conversation: Conversation) -> None:
        while await conversation.request() is not None:
            pass

    async with ScriptedBackend(silent) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        with pytest.raises(UpstreamError) as caught:
            await pool.send(b"POST", HEAD, b"{}", timeouts=Timeouts(first_byte_seconds=0.05))
        assert caught.value.kind is ErrorKind.FIRST_BYTE_TIMEOUT
        pool.close()


async def test_a_keep_alive_that_is_switched_off_holds_for_connections_in_use() -> None:
    async with ScriptedBackend(answering()) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        await ask(pool)
        pool.timeouts = Timeouts(keepalive_seconds=0)
        await ask(pool)
        assert pool.idle_connections == 0
        pool.close()
