"""The suite's client: one TCP connection to the router, and every byte on it in the open."""

from __future__ import annotations

import asyncio
import socket
import struct
from types import TracebackType
from typing import Self, cast

from conformance.wire import Answer, Head, Inbox, read_answer, read_head


class ClientConnection(asyncio.Protocol):
    """A connection. Used as an async context manager, it is closed on the way out."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._paused_by_hand = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()
        self.inbox = Inbox()

    @classmethod
    async def open(cls, host: str, port: int, *, receive_buffer_bytes: int | None = None) -> Self:
        """Connect. receive_buffer_bytes: a small kernel buffer, for readers that must be slow."""
        loop = asyncio.get_running_loop()
        if receive_buffer_bytes is None:
            _, protocol = await loop.create_connection(cls, host, port)
            return protocol
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        _, protocol = await loop.create_connection(cls, sock=sock)
        return protocol

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self.inbox.feed(data)

    def eof_received(self) -> bool:
        """The router has closed its side; ours is closed with it."""
        self.inbox.end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake whoever waits."""
        self.inbox.end(reset=exc is not None)
        self._writable.set()
        self.closed.set()

    def pause_writing(self) -> None:
        """The kernel's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """There is room again."""
        self._writable.set()

    async def send(self, data: bytes) -> None:
        """Send bytes; what is sent after a close is dropped, as it would be by a kernel."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            await self._writable.wait()

    async def head(self) -> Head:
        """Read the head of a response. Raises ClosedError or BrokenError."""
        return await read_head(self.inbox)

    async def answer(self, *, head_only: bool = False) -> Answer:
        """Read a whole response. Raises ClosedError or BrokenError."""
        return await read_answer(self.inbox, head_only=head_only)

    async def some(self) -> bytes:
        """Take what is there, or what comes next; empty at the end."""
        if not self.inbox.buffer:
            await self.inbox.more()
        return self.inbox.take(len(self.inbox.buffer))

    def stop_reading(self) -> None:
        """Take no more bytes out of the kernel."""
        if self._transport is not None:
            self._transport.pause_reading()

    def read_again(self) -> None:
        """Undo `stop_reading`."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once, with FIN."""
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Close with RST."""
        if self._transport is not None:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
