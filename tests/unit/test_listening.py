from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from prefix_router.listening import Listening
from prefix_router.tls import ListenerFiles, Tls, listener_tls
from tests.support.certificates import Authority, Files


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def tls_of(files: Files) -> Tls | None:
    return listener_tls(ListenerFiles(str(files.certificate), str(files.key)))


@asynccontextmanager
async def listening(tls: Tls | None) -> AsyncIterator[Listening]:
    made = Listening(Echo, tls)
    await made.open("127.0.0.1", 0)
    yield made
    made.close()


async def echoed(port: int, context: ssl.SSLContext | None) -> bytes:
    name = None if context is None else "a.example"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        writer.write(b"hello")
        return await asyncio.wait_for(reader.readexactly(5), 5)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_plain_and_tls_follow_each_other_at_one_port_and_connections_stay(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = tls_of(authority.issue("a", "a.example"))
    async with listening(None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        number = port.port
        await port.exchange(tls)
        assert port.port == number
        assert await echoed(number, authority.client()) == b"hello"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await echoed(number, None)
        await port.exchange(None)
        assert await echoed(number, None) == b"hello"
        writer.write(b"still here")
        assert await asyncio.wait_for(reader.readexactly(10), 5) == b"still here"
        writer.close()


async def test_no_connection_is_refused_while_contexts_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    contexts = [tls_of(authority.issue(str(number), "a.example")) for number in range(2)]
    async with listening(contexts[0]) as port:
        changing = True

        async def ask() -> int:
            answers = 0
            while changing:
                assert await echoed(port.port, authority.client()) == b"hello"
                answers += 1
            return answers

        clients = [asyncio.create_task(ask()) for _ in range(4)]
        for turn in range(30):
            await port.exchange(contexts[(turn + 1) % 2])
            await asyncio.sleep(0.01)
        changing = False
        assert min(await asyncio.gather(*clients)) > 0


async def test_given_sockets_are_served_and_closed(tmp_path: Path) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    port = Listening(Echo, None)
    await port.open("", 0, [sock])
    number = port.port
    assert await echoed(number, None) == b"hello"
    port.close()
    await port.exchange(tls_of(Authority(tmp_path).issue("a", "a.example")))  # too late, and no harm
    with pytest.raises(ConnectionRefusedError):
        await echoed(number, None)


async def test_who_cannot_exchange_says_so_and_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    authority = Authority(tmp_path)
    first = tls_of(authority.issue("a", "a.example"))
    async with listening(first) as port:
        monkeypatch.setattr(os, "dup", none_left)
        await port.exchange(None)
        assert port.tls is first
        assert await echoed(port.port, authority.client()) == b"hello"
    assert "still get the old certificate" in caplog.text
