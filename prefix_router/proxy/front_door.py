"""The data port: aiohttp's HTTP server, with the answers to requests that never become one.

Three settings of it matter to a proxy. `handler_cancellation`: a client that goes away cancels its
request at once, which closes the backend's connection, which makes the engine stop. `auto_decompress`
off: bodies are passed on as they came. And errors of the parser (broken framing, two lengths, header
bombs) are answered in the same form as every other error, then the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from prefix_router.openai_api.errors import ErrorCode

logger = logging.getLogger(__name__)

MAX_HEADERS = 256
WATCH_INTERVAL_SECONDS = 0.5
FLUSH_INTERVAL_SECONDS = 0.02

# Linux's numbers (include/net/tcp_states.h); the state is the first byte of struct tcp_info.
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8


def _has_left(transport: asyncio.Transport) -> bool:
    """Whether the kernel has seen the other side close or reset. False where it cannot be asked."""
    sock = transport.get_extra_info("socket")
    if sock is None or _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in (_TCP_CLOSE, _TCP_CLOSE_WAIT)
    except OSError:
        return False


class _Connection(web.RequestHandler):
    """One client connection."""

    __slots__ = ("_refused",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._refused = False

    def data_received(self, data: bytes) -> None:
        """Parse what came, until it is found to be no HTTP; what comes after that is thrown away.

        aiohttp would parse on, and fail again for every piece that arrives before the connection is closed.
        Each failure holds its piece through its traceback, in a cycle that only a rare full garbage
        collection frees: a few hundred clients with endless headers cost gigabytes that way.
        """
        if self._refused:
            return
        super().data_received(data)
        if self._messages and (error := getattr(self._messages[-1][0], "exc", None)) is not None:
            self._refused = True
            error.__traceback__ = error.__context__ = error.__cause__ = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that could not be parsed."""
        code = ErrorCode.HEADER_TOO_LARGE if isinstance(exc, LineTooLong) else ErrorCode.BAD_REQUEST
        reason = type(exc).__name__ if exc is not None else "error"
        logger.debug("refused a request from %s: %s", request.remote, reason)
        if request.writer.output_size > 0:
            raise ConnectionError("a response had already begun")
        response = web.Response(
            status=code.status,
            body=code.body("The request is not valid HTTP/1.1; the connection is closed."),
            content_type="application/json",
        )
        response.force_close()
        return response


class FrontDoor(web.Server):
    """Accepts connections and calls `handler` for each request.

    `keepalive_seconds` and `max_header_bytes` may be assigned: they hold for connections made from then on.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        keepalive_seconds: float,
        max_header_bytes: int,
        read_buffer_bytes: int = 256 * 1024,
    ) -> None:
        """Times in seconds, sizes in bytes. `max_header_bytes` bounds one header line and the target."""
        super().__init__(handler, handler_cancellation=True)
        self._loop_of_connections = asyncio.get_running_loop()
        self.keepalive_seconds = keepalive_seconds
        self.max_header_bytes = max_header_bytes
        self._read_buffer_bytes = read_buffer_bytes

    async def watch(self) -> None:
        """Close connections whose client has left unnoticed. Runs until cancelled.

        While a client has sent more than is wanted (a pipelined request, an upload that nobody takes) its
        socket is not read, and so its end is not seen. The kernel knows.
        """
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            for connection in self.connections:
                transport = connection.transport
                if transport is not None and not transport.is_closing() and _has_left(transport):
                    transport.abort()

    async def flushed(self, seconds: float) -> bool:
        """Wait until clients have taken all that was written for them, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while any(
            connection.transport is not None and connection.transport.get_write_buffer_size()
            for connection in self.connections
        ):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(FLUSH_INTERVAL_SECONDS)
        return True

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of a new connection."""
        return _Connection(
            self,
            loop=self._loop_of_connections,
            keepalive_timeout=self.keepalive_seconds,
            access_log=None,
            auto_decompress=False,
            max_line_size=self.max_header_bytes,
            max_field_size=self.max_header_bytes,
            max_headers=MAX_HEADERS,
            read_bufsize=self._read_buffer_bytes,
        )
