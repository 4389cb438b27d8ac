from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from prefix_router.upstream.connection import READ_HIGH_WATER_BYTES, Connection
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.pool import Pool, Timeouts
from prefix_router.upstream.response import Response
from tests.support.scripted_backend import Conversation, Script, ScriptedBackend, playing

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def read_all(response: Response) -> bytes:
    body = b""
    while chunk := await response.read():
        body += chunk
    return body


async def exchange(
    script: Script, timeouts: Timeouts | None = None, method: bytes = b"POST"
) -> tuple[Response, bytes]:
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, timeouts or Timeouts())
        try:
            response = await pool.send(method, HEAD, b"{}")
            return response, await read_all(response)
        finally:
            pool.close()


async def test_a_response_keeps_its_head_as_it_was_sent() -> None:
    response, body = await exchange(
        playing(
            b"HTTP/1.1 207 Multi Status\r\nX-Odd:  two words \r\nx-odd: \xe9\r\nContent-Length: 0\r\n\r\n"
        )
    )
    assert (response.status, response.reason) == (207, b"Multi Status")
    assert response.headers == [(b"X-Odd", b"two words "), (b"x-odd", b"\xe9"), (b"Content-Length", b"0")]
    assert body == b""


@pytest.mark.parametrize(
    ("wire", "length"),
    [
        (OK, 2),
        (CHUNKED + b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\n\r\nhi", None),
        (b"HTTP/1.0 200 OK\r\n\r\nhi", None),
    ],
    ids=["length", "chunked", "until-close", "http/1.0"],
)
async def test_every_framing_gives_the_same_body(wire: bytes, length: int | None) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(wire)

    response, body = await exchange(script)
    assert body == b"hi"
    assert response.content_length == length


@pytest.mark.parametrize("cut", range(1, len(OK)))
async def test_a_response_may_be_split_at_any_byte(cut: int) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK[:cut])
        await asyncio.sleep(0)
        await conversation.send(OK[cut:])

    _, body = await exchange(script)
    assert body == b"hi"


async def test_interim_responses_are_passed_over() -> None:
    response, body = await exchange(
        playing(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK)
    )
    assert (response.status, response.reason, body) == (200, b"OK", b"hi")
    assert response.headers == [(b"Content-Length", b"2")]


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_a_status_without_body_ends_with_its_head(status: bytes) -> None:
    _, body = await exchange(playing(b"HTTP/1.1 " + status + b"\r\n\r\n"))
    assert body == b""


async def test_the_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    response, body = await exchange(playing(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), method=b"HEAD")
    assert (response.content_length, body) == (9, b"")


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"", ErrorKind.RESET),
        (b"HTTP/1.1 200 OK\r\nContent-", ErrorKind.BAD_RESPONSE),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ErrorKind.BAD_RESPONSE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", ErrorKind.BAD_RESPONSE),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nhi",
            ErrorKind.BAD_RESPONSE,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", ErrorKind.BAD_RESPONSE),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            ErrorKind.BAD_RESPONSE,
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 1000) * 300, ErrorKind.BAD_RESPONSE),
    ],
    ids=[
        "nothing",
        "half-head",
        "not-http",
        "two-lengths",
        "both-framings",
        "other-coding",
        "upgrade",
        "endless-head",
    ],
)
async def test_a_backend_that_does_not_answer_properly_fails_before_the_head(
    wire: bytes, kind: ErrorKind
) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        if wire:
            await conversation.send(wire)

    with pytest.raises(UpstreamError) as caught:
        await exchange(script)
    assert caught.value.kind is kind
    assert not caught.value.reused


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
        CHUNKED + b"2\r\nhi\r\n",
        CHUNKED + b"2\r\nhi\r\nzz\r\n",
    ],
    ids=["short-of-length", "no-final-chunk", "broken-chunk"],
)
async def test_a_body_that_breaks_off_is_never_taken_for_complete(wire: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(wire)

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        with pytest.raises(UpstreamError) as caught:
            await read_all(response)
        assert caught.value.kind is ErrorKind.TRUNCATED


async def test_a_reset_in_a_body_that_ends_by_closing_is_not_its_end() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\n\r\nhi")
        await read.wait()
        conversation.reset()

    read = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        assert await response.read() == b"hi"
        read.set()
        with pytest.raises(UpstreamError) as caught:
            await response.read()
        assert caught.value.kind is ErrorKind.TRUNCATED


async def test_no_head_in_time_is_a_first_byte_timeout_and_closes() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(first_byte_seconds=0.05))
        with pytest.raises(UpstreamError) as caught:
            await pool.send(b"POST", HEAD, b"{}")
        assert caught.value.kind is ErrorKind.FIRST_BYTE_TIMEOUT
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)


async def test_a_silent_body_is_an_idle_timeout() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(b"one")
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(idle_seconds=0.05))
        response = await pool.send(b"POST", HEAD, b"{}")
        assert await response.read() == b"one"
        with pytest.raises(UpstreamError) as caught:
            await response.read()
        assert caught.value.kind is ErrorKind.IDLE_TIMEOUT
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)


async def test_a_slow_reader_is_not_taken_for_a_silent_backend() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(b"one")
        await reader_paused.wait()
        await conversation.chunk(b"two")
        await conversation.chunk(b"")

    reader_paused = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(idle_seconds=0.05))
        response = await pool.send(b"POST", HEAD, b"{}")
        assert await response.read() == b"one"
        await asyncio.sleep(0.15)  # longer than the idle timeout, while nobody waits for the backend
        reader_paused.set()
        assert await read_all(response) == b"two"


async def test_reading_stops_while_nobody_takes_the_bytes() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        await conversation.send(b"x" * size)

    size = 64 * 1024 * 1024
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        for _ in range(200):
            await asyncio.sleep(0)
        received = 0
        largest = 0
        while chunk := await response.read():
            received += len(chunk)
            largest = max(largest, len(chunk))
        assert received == size
        assert largest <= READ_HIGH_WATER_BYTES + 256 * 1024


async def test_cancelling_a_request_closes_the_connection() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        task = asyncio.ensure_future(pool.send(b"POST", HEAD, b"{}"))
        await asyncio.wait_for(backend.asked.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)


async def test_aborting_a_response_closes_the_connection() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        response.abort()
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)
        response.abort()


async def test_a_streamed_body_arrives_piece_by_piece() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"3\r\nabc\r\n"
        yield b"2\r\nde\r\n"
        yield b"0\r\n\r\n"

    async with ScriptedBackend(playing(OK)) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        response = await pool.send(b"POST", head, pieces())
        assert await read_all(response) == b"hi"
        assert backend.requests[0].body == b"abcde"


async def test_a_failing_streamed_body_closes_the_connection() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"3\r\nabc\r\n"
        raise RuntimeError("the client broke its body")

    async def script(conversation: Conversation) -> None:
        await conversation.client_gone()

    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        with pytest.raises(RuntimeError):
            await pool.send(b"POST", HEAD, pieces())
        await asyncio.sleep(0)
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)


async def test_an_early_answer_ends_the_sending_of_a_streamed_body() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"1\r\na\r\n"
        await answered.wait()
        for _ in range(1000):
            await asyncio.sleep(0)
            yield b"1\r\na\r\n"

    async def script(conversation: Conversation) -> None:
        await conversation.reader.readuntil(b"\r\n\r\n")
        await conversation.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        answered.set()
        await conversation.client_gone()

    answered = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, pieces())
        assert response.status == 413
        assert await read_all(response) == b""
        assert pool.idle_connections == 0


async def test_trailers_are_dropped_however_they_arrive() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED + b"2\r\nhi\r\n0\r\nSet-Cookie: late=1\r\n\r\n")

    response, body = await exchange(script)
    assert body == b"hi"
    assert response.headers == [(b"Transfer-Encoding", b"chunked")]


async def test_a_backend_that_takes_no_more_of_an_upload_is_given_up() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"10000\r\n" + b"x" * 65536 + b"\r\n"

    async def script(conversation: Conversation) -> None:
        await forever.wait()

    forever = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(idle_seconds=0.1))
        with pytest.raises(UpstreamError) as caught:
            await pool.send(b"POST", HEAD, endless())
    assert caught.value.kind is ErrorKind.FIRST_BYTE_TIMEOUT


@pytest.mark.parametrize("answers", [True, False])
async def test_an_answer_or_death_is_seen_while_the_client_still_sends(answers: bool) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"1\r\na\r\n"
        await forever.wait()

    async def script(conversation: Conversation) -> None:
        await conversation.reader.readuntil(b"a\r\n")
        if answers:
            await conversation.send(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
            await conversation.client_gone()

    forever = asyncio.Event()
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        if answers:
            assert (await pool.send(b"POST", HEAD, slow())).status == 401
        else:
            with pytest.raises(UpstreamError) as caught:
                await pool.send(b"POST", HEAD, slow())
            assert caught.value.kind is ErrorKind.RESET
        assert pool.idle_connections == 0


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        CHUNKED + b"2\r\nhi\r\n",
    ],
    ids=["until-close", "close", "broken"],
)
async def test_a_connection_that_has_ended_is_not_kept_by_its_timer(wire: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(wire[:-1])
        await begun.wait()  # so that the body is waited for, with a deadline
        await conversation.send(wire[-1:])

    def connections() -> set[int]:
        gc.collect()
        return {id(found) for found in gc.get_objects() if type(found) is Connection}

    begun = asyncio.Event()
    before = connections()  # other tests may have left some
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts())
        response = await pool.send(b"POST", HEAD, b"{}")
        reading = asyncio.ensure_future(read_all(response))
        await asyncio.sleep(0)
        begun.set()
        await asyncio.wait([reading])
        assert reading.exception() is not None or reading.result() == b"hi"
        pool.close()
    del response, reading
    await asyncio.sleep(0)
    assert connections() <= before
