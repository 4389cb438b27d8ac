from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from prefix_router.upstream.connection import READ_HIGH_WATER_BYTES
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.pool import Pool, Timeouts
from prefix_router.upstream.response import Response
from tests.support.scripted_backend import Conversation, Script, ScriptedBackend

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"


class Taken:
    """A taker that keeps what it gets, and after each piece does as `then` says."""

    def __init__(self, then: Callable[[], bool] = lambda: True) -> None:
        self.pieces: list[tuple[bytes, bool]] = []
        self._then = then

    def __call__(self, chunk: bytes, last: bool) -> bool:
        self.pieces.append((chunk, last))
        return self._then()

    @property
    def body(self) -> bytes:
        """Everything that was taken."""
        return b"".join(chunk for chunk, _ in self.pieces)


async def with_response(
    script: Script, use: Callable[[Response, ScriptedBackend], object], timeouts: Timeouts | None = None
) -> None:
    """Ask a backend that plays `script`, and await what `use` makes of the response."""
    async with ScriptedBackend(script) as backend:
        pool = Pool("127.0.0.1", backend.port, timeouts or Timeouts())
        try:
            made = use(await pool.send(b"POST", HEAD, b"{}"), backend)
            assert asyncio.iscoroutine(made)
            await made
        finally:
            pool.close()


async def test_pieces_are_poured_as_they_come() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        for piece in (b"one", b"two"):
            await conversation.chunk(piece)
            await seen.wait()
            seen.clear()
        await conversation.chunk(b"")

    async def use(response: Response, _: ScriptedBackend) -> None:
        assert await response.pour(taken)
        assert taken.body == b"onetwo"
        assert len(taken.pieces) == 2

    def note() -> bool:
        seen.set()
        return True

    seen = asyncio.Event()
    taken = Taken(note)
    await with_response(script, use)


async def test_the_last_piece_is_marked_when_it_came_with_the_end() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken()
        assert await response.pour(taken)
        assert taken.pieces == [(b"hi", True)]

    await with_response(script, use)


async def test_chunks_of_one_read_are_poured_as_one_piece() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await ready.wait()
        await conversation.send(b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken()
        pouring = asyncio.ensure_future(response.pour(taken))
        await asyncio.sleep(0)
        ready.set()
        assert await pouring
        assert taken.pieces == [(b"abc", True)]

    ready = asyncio.Event()
    await with_response(script, use)


async def test_a_taker_that_wants_a_pause_gets_nothing_until_it_is_asked_again() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(b"one")
        await paused.wait()
        await conversation.chunk(b"two")
        await conversation.chunk(b"")
        sent.set()

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken(lambda: False)
        assert not await response.pour(taken)
        paused.set()
        await sent.wait()
        await asyncio.sleep(0.15)  # longer than the idle timeout: it is the client that is slow
        assert taken.body == b"one"
        while not await response.pour(taken):
            pass
        assert taken.body == b"onetwo"

    paused, sent = asyncio.Event(), asyncio.Event()
    await with_response(script, use, Timeouts(idle_seconds=0.05))


async def test_during_a_pause_little_is_read() -> None:
    size = 32 * 1024 * 1024

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        await conversation.send(b"x" * size)

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken(lambda: False)
        while not await response.pour(taken):
            for _turn in range(20):
                await asyncio.sleep(0)
        assert len(taken.body) == size
        assert max(len(chunk) for chunk, _ in taken.pieces) <= READ_HIGH_WATER_BYTES + 256 * 1024

    await with_response(script, use)


async def test_what_came_before_a_break_is_poured_first() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nnonsense\r\n"
        )

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken()
        with pytest.raises(UpstreamError) as caught:
            await response.pour(taken)
        assert caught.value.kind is ErrorKind.TRUNCATED
        assert taken.pieces == [(b"hi", False)]

    await with_response(script, use)


async def test_silence_while_pouring_is_an_idle_timeout() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await conversation.chunk(b"one")
        await conversation.client_gone()

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken()
        with pytest.raises(UpstreamError) as caught:
            await response.pour(taken)
        assert caught.value.kind is ErrorKind.IDLE_TIMEOUT
        assert taken.body == b"one"

    await with_response(script, use, Timeouts(idle_seconds=0.05))


async def test_each_piece_gives_the_backend_new_time() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        for _ in range(6):
            await asyncio.sleep(0.2)
            await conversation.chunk(b".")
        await conversation.chunk(b"")

    async def use(response: Response, _: ScriptedBackend) -> None:
        taken = Taken()
        assert await response.pour(taken)
        assert taken.body == b"......"

    await with_response(script, use, Timeouts(idle_seconds=0.8))


async def test_what_a_taker_raises_is_raised_where_it_is_poured() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.start_stream()
        await ready.wait()
        await conversation.chunk(b"one")
        await conversation.client_gone()

    async def use(response: Response, backend: ScriptedBackend) -> None:
        def gone() -> bool:
            raise ConnectionResetError("client has disconnected")

        pouring = asyncio.ensure_future(response.pour(Taken(gone)))
        await asyncio.sleep(0)
        ready.set()
        with pytest.raises(ConnectionResetError):
            await pouring
        response.abort()
        await asyncio.wait_for(backend.conversations[0].gone.wait(), 5)

    ready = asyncio.Event()
    await with_response(script, use)
