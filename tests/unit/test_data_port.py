from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from prefix_router.build import backends_of, health_policy_of, policy_of
from prefix_router.data_port import DataPort
from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.upstreams import Upstreams
from tests.support.events import Recorder
from tests.support.router import chat, read_answer, request_bytes, settings_for
from tests.support.scripted_backend import ScriptedBackend, answering


@asynccontextmanager
async def data_port(*urls: str, **sections: Any) -> AsyncIterator[DataPort]:
    """A data port that has not started."""
    settings = settings_for(urls, **sections)
    policy = policy_of(settings)
    recorder = Recorder()
    store = FleetStore(
        backends_of(settings),
        virtual_nodes=16,
        policy=health_policy_of(settings),
        observer=recorder,
        clock=time.monotonic,
    )
    upstreams = Upstreams(policy.timeouts)

    async def refresh_models() -> None:
        """Nothing new."""

    port = DataPort(
        settings,
        policy,
        store=store,
        upstreams=upstreams,
        observer=recorder,
        refresh_models=refresh_models,
        clock=time.monotonic,
    )
    yield port
    await port.stop(0)
    upstreams.close()


async def answer_at(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(chat()))
    answer = await asyncio.wait_for(read_answer(reader), 10)
    writer.close()
    return answer.body


async def test_it_serves_on_a_socket_made_from_the_settings() -> None:
    async with ScriptedBackend(answering(b"good")) as a, data_port(a.url) as port:
        await port.start()
        assert await answer_at(port.port) == b"good"


async def test_it_serves_on_all_sockets_that_it_is_given_instead() -> None:
    async with ScriptedBackend(answering(b"good")) as a, data_port(a.url) as port:
        sockets = [socket.socket(), socket.socket()]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        numbers = [sock.getsockname()[1] for sock in sockets]
        await port.start(sockets)
        assert port.port == numbers[0]
        assert [await answer_at(number) for number in numbers] == [b"good"] * 2


async def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with data_port("http://127.0.0.1:1", listen={"port": taken.getsockname()[1]}) as port:
            with pytest.raises(OSError, match="in use"):
                await port.start()


async def test_one_process_has_nothing_to_collect_and_nothing_to_wait_for() -> None:
    async with data_port("http://127.0.0.1:1") as port:
        await port.collect()
        await port.settled()
        assert (port.processes, port.restarts, port.document()) == (1, 0, {})


async def test_after_a_stop_it_takes_nobody_and_may_be_stopped_again() -> None:
    async with ScriptedBackend(answering()) as a, data_port(a.url) as port:
        await port.start()
        await port.stop(0)
        assert port.closing
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port.port)
