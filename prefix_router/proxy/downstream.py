"""The client's side of an exchange: writing a response exactly as it should appear on the wire.

aiohttp parses the request and owns the connection; the response is written here, straight to its
transport. A proxy must send a backend's head byte for byte, with its own framing and nothing added, and
a response object that fills in defaults would have to be fought for that.

A head waits for the first body bytes if those are at hand, so that a short response is one write; `flush`
sends it by itself.

Framing: a known length is announced and kept; otherwise chunked towards HTTP/1.1, and ended by closing
towards HTTP/1.0. A response that cannot be finished is broken off so that the client can tell.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

from aiohttp import HttpVersion10, HttpVersion11

from prefix_router.proxy.client_request import ClientRequest

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


_JOINED_BYTES = 16 * 1024
"""A chunk up to this size is copied between its framing; a larger one is written between them."""


class Downstream:
    """Writes one response. `started` says whether the client has seen any of it."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_finished",
        "_head",
        "_head_only",
        "_http10",
        "_version",
        "_write_seconds",
        "added",
        "bytes_sent",
        "keep_alive",
        "started",
    )

    def __init__(self, request: ClientRequest, write_seconds: float = 0.0) -> None:
        """write_seconds: how long a client may take nothing of a response that waits for it, 0 for ever."""
        self._connection = request.connection
        self._version = request.version
        self._write_seconds = write_seconds
        self._head = b""
        self._finished = False
        self._http10 = request.version < HttpVersion11
        self._head_only = request.method == "HEAD"
        self._chunked = False
        self.keep_alive = request.keep_alive
        self.added = b""
        """Header lines, each with its line end, that go with the head, whoever writes it: append with +=."""
        self.started = False
        self.bytes_sent = 0

    @property
    def gone(self) -> bool:
        """Whether the client has closed its connection."""
        transport = self._connection.transport
        return transport is None or transport.is_closing()

    def continue_100(self) -> None:
        """Tell a client that waits for it to send its body."""
        if not self._http10:
            self._transport().write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def start(self, status: int, reason: bytes, lines: bytes, content_length: int | None) -> None:
        """Begin with the head, which goes out with the next bytes.

        lines: its headers but for the framing, each with its line end. content_length: bytes to come (or
        that a HEAD answer announces), None if unknown.
        """
        bodiless = self._head_only or status in (204, 304)
        framing = b""
        if content_length is not None and status != 204:
            framing = b"Content-Length: %d\r\n" % content_length
        elif not bodiless:
            if self._http10:
                self.keep_alive = False
            else:
                self._chunked = True
                framing = b"Transfer-Encoding: chunked\r\n"
        if not self.keep_alive:
            framing += b"Connection: close\r\n"
        elif self._version == HttpVersion10:
            framing += b"Connection: keep-alive\r\n"
        self.started = True
        self._head = b"HTTP/1.1 %d %b\r\n%b%b%b\r\n" % (status, reason, lines, self.added, framing)

    def flush(self) -> None:
        """Send the head if it has not been sent."""
        if self._head:
            head, self._head = self._head, b""
            self._transport().write(head)

    def put(self, chunk: bytes, last: bool = False) -> bool:
        """Send body bytes, not empty; return whether the client takes more at once.

        last: they end the body. If it takes no more, call `drain` before the next bytes. Raises
        ConnectionResetError when the client has gone.
        """
        connection = self._connection
        transport = connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("client has disconnected")
        size = len(chunk)
        self.bytes_sent += size
        if self._head or last:
            self._put_edge(transport, chunk, last)
        elif not self._chunked:
            transport.write(chunk)
        elif size <= _JOINED_BYTES:
            transport.write(b"%x\r\n%b\r\n" % (size, chunk))
        else:
            transport.writelines((b"%x\r\n" % size, chunk, b"\r\n"))
        return not connection.writing_paused

    def _put_edge(self, transport: asyncio.Transport, chunk: bytes, last: bool) -> None:
        """Send the first or the last bytes of a body, with the head and with the end of the framing."""
        before, self._head = self._head, b""
        after = b""
        if self._chunked:
            before += b"%x\r\n" % len(chunk)
            after = b"\r\n0\r\n\r\n" if last else b"\r\n"
            self._finished = last
        if len(chunk) <= _JOINED_BYTES:
            transport.write(before + chunk + after)
        else:
            transport.writelines([piece for piece in (before, chunk, after) if piece])

    async def drain(self) -> None:
        """Wait while the client reads slower than bytes come. Raises ConnectionResetError when it is gone."""
        if self._connection.writing_paused:
            try:
                async with asyncio.timeout(self._write_seconds if self._write_seconds > 0 else None):
                    await self._connection.drained()
            except TimeoutError:
                self._transport().abort()
                raise ConnectionResetError("client takes nothing") from None

    def finish(self) -> None:
        """End the body."""
        self.flush()
        if self._chunked and not self._finished:
            self._finished = True
            self._transport().write(b"0\r\n\r\n")

    def send(self, status: int, reason: bytes, lines: bytes, body: bytes) -> None:
        """Send a whole, small response. lines: as for `start`."""
        self.start(status, reason, lines, len(body))
        if body and not self._head_only:
            self.put(body, last=True)
        else:
            self.flush()

    def abort(self) -> None:
        """Break the response off so that it cannot be taken for complete."""
        self.keep_alive = False
        transport = self._connection.transport
        if transport is None:
            return
        if self._head and not transport.is_closing():
            self.flush()  # without it an empty answer would look like a server that closed an idle connection
        framed = self._chunked or not self._http10
        if framed and not self._connection.writing_paused:
            # The missing end of the framing tells; what was sent so far still gets there.
            transport.close()
            return
        if (sock := transport.get_extra_info("socket")) is not None:
            with suppress(OSError, AttributeError):
                # Without framing a plain close would look like the end: answer with a reset instead.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()

    def _transport(self) -> asyncio.Transport:
        transport = self._connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("client has disconnected")
        return transport
