from __future__ import annotations

import asyncio
import socket

import pytest

from prefix_router.workers.listeners import Listeners

HERE = "127.0.0.1"


async def test_every_worker_gets_sockets_of_its_own_at_the_same_port() -> None:
    listeners = await Listeners.reserve(HERE, 0)
    one, two = listeners.sockets() + listeners.sockets()
    with one, two:
        for sock in (one, two):
            sock.listen()
        assert one.getsockname() == two.getsockname() == (HERE, listeners.port)
        assert listeners.port != 0
    listeners.close()


async def test_nobody_is_accepted_before_a_worker_listens() -> None:
    listeners = await Listeners.reserve(HERE, 0)
    [sock] = listeners.sockets()
    with sock, pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HERE, listeners.port)
    listeners.close()


async def test_a_port_that_somebody_else_has_is_refused_by_name() -> None:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"{HERE} port {port}: Address already in use"):
            await Listeners.reserve(HERE, port)


async def test_the_port_of_another_pool_is_refused_and_not_shared() -> None:
    first = await Listeners.reserve(HERE, 0)
    [sock] = first.sockets()
    with sock:
        sock.listen()
        with pytest.raises(OSError, match="Address already in use"):
            await Listeners.reserve(HERE, first.port)
    first.close()


async def test_a_port_that_was_given_back_can_be_had_again() -> None:
    first = await Listeners.reserve(HERE, 0)
    first.close()
    again = await Listeners.reserve(HERE, first.port)
    assert again.port == first.port
    again.close()


async def test_a_host_with_two_addresses_has_one_port() -> None:
    listeners = await Listeners.reserve("localhost", 0)
    sockets = listeners.sockets()
    assert {sock.getsockname()[1] for sock in sockets} == {listeners.port}
    for sock in sockets:
        sock.close()
    listeners.close()


async def test_a_host_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OSError, match=r"."):
        await Listeners.reserve("host.invalid", 0)
