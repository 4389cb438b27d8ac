from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
import uvloop

from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.patience import Patience
from prefix_router.upstream.pool import Pool, Timeouts
from tests.support.scripted_backend import ScriptedBackend, playing

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def hold_up(seconds: float) -> None:
    """Keep the whole event loop busy."""
    time.sleep(seconds)


async def test_a_wait_that_ends_in_time_is_left_alone() -> None:
    async with Patience(60):
        await asyncio.sleep(0)


async def test_a_wait_that_is_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError):
        async with Patience(0.01):
            await asyncio.Event().wait()


async def test_zero_is_no_bound() -> None:
    async with Patience(0):
        await asyncio.sleep(0.05)


async def test_a_loop_that_is_always_late_does_not_make_it_endless() -> None:
    def always() -> None:
        hold_up(0.05)
        loop.call_soon(always)

    loop = asyncio.get_running_loop()
    loop.call_soon(always)
    with pytest.raises(TimeoutError):
        async with Patience(0.05):
            await asyncio.Event().wait()


async def test_a_connection_that_the_loop_was_too_busy_to_see_is_no_failure() -> None:
    async with ScriptedBackend(playing(OK)) as backend:
        pool = Pool("127.0.0.1", backend.port, Timeouts(connect_seconds=0.1))
        task = asyncio.ensure_future(pool.send(b"POST", HEAD, b"{}"))
        await asyncio.sleep(0)
        hold_up(0.5)  # while the connection is being made
        assert (await task).status == 200
        pool.close()


@pytest.mark.parametrize("silent", [True, False])
def test_a_response_that_the_loop_was_too_busy_to_see_is_no_timeout(silent: bool) -> None:
    """With uvloop, which calls timers before it looks at sockets."""

    class Busy(asyncio.Protocol):
        transport: asyncio.Transport

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.Transport", transport)

        def data_received(self, data: bytes) -> None:
            if not silent:
                self.transport.write(OK)
            hold_up(0.5)  # in the same round of the loop, which has asked for events already

    async def ask() -> int:
        server = await asyncio.get_running_loop().create_server(Busy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = Pool("127.0.0.1", port, Timeouts(first_byte_seconds=0.2))
        try:
            return (await pool.send(b"POST", HEAD, b"{}")).status
        finally:
            pool.close()
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if silent:
            with pytest.raises(UpstreamError) as caught:
                runner.run(ask())
            assert caught.value.kind is ErrorKind.FIRST_BYTE_TIMEOUT
        else:
            assert runner.run(ask()) == 200
