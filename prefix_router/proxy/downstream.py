"""The client's side of an exchange: writing a response exactly as it should appear on the wire.

aiohttp parses the request and owns the connection; the response is written here, straight to its
transport. A proxy must send a backend's head byte for byte, with its own framing and nothing added, and
a response object that fills in defaults would have to be fought for that.

Framing: a known length is announced and kept; otherwise chunked towards HTTP/1.1, and ended by closing
towards HTTP/1.0. A response that cannot be finished is broken off so that the client can tell.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from aiohttp import HttpVersion10, HttpVersion11, web

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

RawHeaders = Sequence[tuple[bytes, bytes]]


class _Delivered(web.StreamResponse):
    """Tells aiohttp that the response is on the wire already, and whether the connection goes on."""

    def __init__(self, keep_alive: bool) -> None:
        super().__init__()
        self._goes_on = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._goes_on

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


class Downstream:
    """Writes one response. `started` says whether the client has seen any of it."""

    __slots__ = (
        "_chunked",
        "_head_only",
        "_http10",
        "_request",
        "_write_seconds",
        "bytes_sent",
        "keep_alive",
        "started",
    )

    def __init__(self, request: web.BaseRequest, write_seconds: float = 0.0) -> None:
        """write_seconds: how long a client may take nothing of a response that waits for it, 0 for ever."""
        self._request = request
        self._write_seconds = write_seconds
        self._http10 = request.version < HttpVersion11
        self._head_only = request.method == "HEAD"
        self._chunked = False
        self.keep_alive = bool(request.keep_alive)
        self.started = False
        self.bytes_sent = 0

    @property
    def gone(self) -> bool:
        """Whether the client has closed its connection."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def continue_100(self) -> None:
        """Tell a client that waits for it to send its body."""
        if not self._http10:
            self._transport().write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def start(self, status: int, reason: bytes, headers: RawHeaders, content_length: int | None) -> None:
        """Send the head. content_length: bytes to come (or that a HEAD answer announces), None if unknown."""
        bodiless = self._head_only or status in (204, 304)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, reason)]
        lines += [b"%b: %b\r\n" % pair for pair in headers]
        if content_length is not None and status != 204:
            lines.append(b"Content-Length: %d\r\n" % content_length)
        elif not bodiless:
            if self._http10:
                self.keep_alive = False
            else:
                self._chunked = True
                lines.append(b"Transfer-Encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"Connection: close\r\n")
        elif self._request.version == HttpVersion10:
            lines.append(b"Connection: keep-alive\r\n")
        lines.append(b"\r\n")
        self.started = True
        self._transport().write(b"".join(lines))

    async def write(self, chunk: bytes) -> None:
        """Send body bytes; waits while the client reads slower than they come."""
        self.bytes_sent += len(chunk)
        transport = self._transport()
        if self._chunked:
            transport.writelines((b"%x\r\n" % len(chunk), chunk, b"\r\n"))
        else:
            transport.write(chunk)
        if self._request.protocol.writing_paused:
            try:
                async with asyncio.timeout(self._write_seconds if self._write_seconds > 0 else None):
                    await self._request.writer.drain()
            except TimeoutError:
                transport.abort()
                raise ConnectionResetError("client takes nothing") from None

    def finish(self) -> None:
        """End the body."""
        if self._chunked:
            self._transport().write(b"0\r\n\r\n")

    def send(self, status: int, reason: bytes, headers: RawHeaders, body: bytes) -> None:
        """Send a whole, small response."""
        self.start(status, reason, headers, len(body))
        if body and not self._head_only:
            self.bytes_sent += len(body)
            self._transport().write(body)

    def abort(self) -> None:
        """Break the response off so that it cannot be taken for complete."""
        self.keep_alive = False
        transport = self._request.transport
        if transport is None:
            return
        framed = self._chunked or not self._http10
        if framed and not self._request.protocol.writing_paused:
            # The missing end of the framing tells; what was sent so far still gets there.
            transport.close()
            return
        if (sock := transport.get_extra_info("socket")) is not None:
            with suppress(OSError, AttributeError):
                # Without framing a plain close would look like the end: answer with a reset instead.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()

    def delivered(self) -> web.StreamResponse:
        """Return what aiohttp wants back from a handler."""
        return _Delivered(self.keep_alive)

    def _transport(self) -> asyncio.Transport:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("client has disconnected")
        return transport
