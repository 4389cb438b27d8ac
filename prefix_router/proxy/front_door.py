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
from http import HTTPStatus
from typing import Any, TypeAlias, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

from prefix_router.openai_api.errors import ErrorCode
from prefix_router.proxy.client_request import ClientRequest, Head

logger = logging.getLogger(__name__)

Serve: TypeAlias = Callable[[ClientRequest], Awaitable[bool]]
"""Serves one request; returns whether another may follow on its connection. Raises CancelledError only."""

MAX_HEADERS = 256

MAX_HEAD_LINES = 4
"""How many lines of the largest size a head may take, in bytes all together, before its end is there."""

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


_REFUSALS = {
    ErrorCode.TARGET_TOO_LONG: "The path and query are longer than limits.max_header_bytes.",
    ErrorCode.HEADER_TOO_LARGE: f"A header is longer than limits.max_header_bytes, there are more than "
    f"{MAX_HEADERS}, or they are too long all together.",
}


class _EndlessHead:
    """Stands where a request would, for a head that gets too long before it ends."""

    def __init__(self, exc: HttpProcessingError) -> None:
        self.exc = exc


class _Connection(web.RequestHandler):
    """One client connection."""

    __slots__ = ("_head_bytes", "_max_field_size", "_refused")

    def __init__(self, *arguments: Any, max_field_size: int, **options: Any) -> None:
        # One byte apart, so that the parser's error tells whether the target or a header was too long.
        super().__init__(
            *arguments, max_field_size=max_field_size, max_line_size=max_field_size + 1, **options
        )
        self._refused = False
        self._head_bytes = 0
        self._max_field_size = max_field_size

    def data_received(self, data: bytes) -> None:
        """Parse what came, until it is found to be no HTTP; what comes after that is thrown away.

        aiohttp would parse on, and fail again for every piece that arrives before the connection is closed.
        Each failure holds its piece through its traceback, in a cycle that only a rare full garbage
        collection frees: a few hundred clients with endless headers cost gigabytes that way.

        The parser bounds each line; a head of many long ones that does not end is bounded here.
        """
        if self._refused:
            return
        waiter = self._waiter
        super().data_received(data)
        if not self._messages:
            if waiter is None:
                return  # part of a body
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_LINES * self._max_field_size:
                endless = _EndlessHead(LineTooLong(b"", self._max_field_size))
                self._messages.append((cast("Any", endless), EMPTY_PAYLOAD))
                self._refused = True
                if not waiter.done():
                    waiter.set_result(None)
            return
        self._head_bytes = 0
        if not isinstance(self._messages[-1][0], RawRequestMessage):
            self._refused = True
            error = self._messages[-1][0].exc
            if error is not None:
                error.__traceback__ = error.__context__ = error.__cause__ = None

    async def start(self) -> None:
        """Serve the requests of this connection, one after the other.

        In place of aiohttp's own loop, which makes a task, a request object, a response object and a response
        writer for each request. All else of aiohttp's connection stays: its parser, its flow control, its
        timers, and that a client which leaves cancels the task in which this runs.
        """
        loop = self._loop
        manager = self._manager
        assert manager is not None
        handler = cast("Serve", manager.request_handler)
        peer = self.peername
        remote = str(peer[0]) if isinstance(peer, tuple) else ""
        transport = self.transport
        in_tls = transport is not None and transport.get_extra_info("sslcontext") is not None
        scheme = b"https" if in_tls else b"http"
        while not self._force_close:
            if not self._messages:
                self._waiter = loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            head, content = self._messages.popleft()
            self._make_room()
            if self._refused and not self._messages:
                self._refuse(getattr(head, "exc", None))
                break
            self._request_in_progress = True
            try:
                goes_on = await handler(ClientRequest(cast("Head", head), content, self, remote, scheme))
                if not content.is_eof():
                    goes_on = await self._linger(content) and goes_on
            except asyncio.CancelledError:
                self.force_close()
                raise
            except Exception:
                logger.exception("a request failed in the router")
                self.force_close()
                break
            finally:
                self._request_in_progress = False
                if self._handler_waiter is not None and not self._handler_waiter.done():
                    self._handler_waiter.set_result(None)
            self._keepalive = goes_on
            if not goes_on or self._close:
                break
            self._next_keepalive_close_time = loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                when = self._next_keepalive_close_time
                self._keepalive_handle = loop.call_at(when, self._process_keepalive)
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def drained(self) -> None:
        """Wait until the client has taken bytes. Raises ConnectionResetError when it has gone."""
        await self._drain_helper()

    def _make_room(self) -> None:
        """Let the parser go on with requests that were sent ahead."""
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()

    async def _linger(self, content: StreamReader) -> bool:
        """Read what a client still sends of a body that nobody wants; return whether its end came.

        A connection that is closed while bytes arrive is reset, and the client may lose the answer.
        """
        try:
            async with asyncio.timeout(self._lingering_time):
                while not content.is_eof() and not self._force_close:
                    await content.readany()
        except TimeoutError:
            return False
        except (web.RequestPayloadError, HttpProcessingError):
            return False
        return content.is_eof()

    def _refuse(self, error: BaseException | None) -> None:
        """Answer what could not be parsed."""
        code = self._code_for(error)
        logger.debug("refused a request from %s: %s", self.peername, type(error).__name__)
        body = code.body(_REFUSALS.get(code, "The request is not valid HTTP/1.1; the connection is closed."))
        phrase = HTTPStatus(code.status).phrase.encode()
        head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        if self.transport is not None:
            head %= (code.status, phrase, len(body))
            self.transport.write(head + b"Connection: close\r\n\r\n" + body)

    def _code_for(self, error: BaseException | None) -> ErrorCode:
        if isinstance(error, LineTooLong):
            of_a_header = error.args[1] == self._max_field_size
            return ErrorCode.HEADER_TOO_LARGE if of_a_header else ErrorCode.TARGET_TOO_LONG
        if isinstance(error, HttpProcessingError) and error.message.startswith("Too many headers"):
            return ErrorCode.HEADER_TOO_LARGE
        return ErrorCode.BAD_REQUEST


class FrontDoor(web.Server):
    """Accepts connections and calls `handler` for each request.

    `keepalive_seconds` and `max_header_bytes` may be assigned: they hold for connections made from then on.
    """

    def __init__(
        self,
        handler: Serve,
        *,
        keepalive_seconds: float,
        max_header_bytes: int,
        read_buffer_bytes: int = 256 * 1024,
    ) -> None:
        """Times in seconds, sizes in bytes. `max_header_bytes` bounds one header line and the target."""
        super().__init__(cast("Any", handler), handler_cancellation=True)
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
            max_field_size=self.max_header_bytes,
            max_headers=MAX_HEADERS,
            read_bufsize=self._read_buffer_bytes,
        )
