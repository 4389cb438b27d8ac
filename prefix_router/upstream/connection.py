"""One HTTP/1.1 connection to a backend.

The parser is llhttp (through httptools); this file adds only what a proxy needs around it: which bytes
end a response, back-pressure, two timeouts and a precise account of how an exchange failed. Body bytes
are handed on as they arrive; nothing is decoded or joined across reads unless it already waits.

A connection carries one exchange at a time and never pipelines. It is reusable only when a response
ended by its own framing, the backend did not ask for close, and not one byte came after it: a byte that
nobody asked for could be taken for the next response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from ssl import SSLError
from typing import cast

import httptools

from prefix_router.upstream.deadline import Deadline
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.response import Response
from prefix_router.upstream.tls_failures import refuses_ours, tls_failure

READ_HIGH_WATER_BYTES = 128 * 1024
"""Unread body bytes at which the socket is no longer read, so that a slow client slows its backend."""

MAX_RESPONSE_HEAD_BYTES = 256 * 1024

JOINED_BYTES = 64 * 1024
"""A body up to this size is copied behind its head, which costs less than sending it separately."""

_JUST_MADE_SECONDS = 1.0

_NOTED = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"connection", b"transfer-encoding"}
)


class Connection(asyncio.Protocol):
    """A socket to a backend. Made by `pool.Pool`, which gets it back through `on_idle`."""

    __slots__ = (
        "_body",
        "_chunked",
        "_closed",
        "_deadline",
        "_drain_waiter",
        "_head_bytes",
        "_head_waiter",
        "_idle_seconds",
        "_loop",
        "_made_at",
        "_message_ended",
        "_method",
        "_on_closed",
        "_on_idle",
        "_parser",
        "_reading_paused",
        "_response",
        "_reusable",
        "_sending",
        "_transport",
        "_until_close",
        "_writing_paused",
        "exchanges",
        "idle_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_idle: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._head_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._method = b""
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._idle_seconds = 0.0
        self._deadline = Deadline(loop, self._missed)
        self._sending = False
        self._chunked = False
        self._message_ended = False
        self._reusable = False
        self._until_close = False
        self._reading_paused = False
        self._writing_paused = False
        self._closed = False
        self._made_at = 0.0
        self.exchanges = 0
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether a new exchange may start here."""
        return not self._closed and self._response is None

    async def exchange(
        self,
        method: bytes,
        head: bytes,
        body: bytes | AsyncIterator[bytes],
        first_byte_seconds: float,
        idle_seconds: float,
    ) -> Response:
        """Send one request and return its response once the head is complete.

        head: the whole request head, blank line included. body: the bytes as they go on the wire, or
        an iterator of such bytes. Timeouts in seconds, 0 for none. Raises UpstreamError; whatever is
        raised (also cancellation), the connection is closed then.
        """
        reused = self.exchanges > 0
        self.exchanges += 1
        self._method = method
        self._head_bytes = 0
        self._idle_seconds = idle_seconds
        self._chunked = False
        self._message_ended = False
        self._reusable = False
        self._until_close = False
        response = self._response = Response(self)
        waiter = self._head_waiter = self._loop.create_future()
        sender: asyncio.Task[None] | None = None
        try:
            transport = self._transport
            if self._closed or transport is None:
                raise UpstreamError(ErrorKind.RESET, "connection already closed", reused=reused)
            if not isinstance(body, bytes):
                transport.write(head)
                # Beside the waiting, not before it: a backend may answer, or die, in the middle of an upload.
                sender = self._loop.create_task(self._send_stream(body, idle_seconds), name="request body")
                sender.add_done_callback(_seen)
                self._sending = True
                await asyncio.wait([sender, waiter], return_when=asyncio.FIRST_COMPLETED)
                if not waiter.done():
                    sender.result()
                    self._sending = False
            elif len(body) <= JOINED_BYTES:
                transport.write(head + body)
            else:
                transport.writelines((head, body))
            if not waiter.done():
                self._deadline.expect(first_byte_seconds)
            await waiter
        except BaseException as error:
            if not waiter.done():
                waiter.cancel()
            elif not waiter.cancelled():
                waiter.exception()  # mark as seen: the error on its way says the same
            # Through the response: a connection that was already given back may serve another by now.
            response.abort()
            if isinstance(error, UpstreamError):
                error.reused = reused
            raise
        finally:
            if self._head_waiter is waiter:
                self._head_waiter = None
            if sender is not None and not sender.done():
                sender.cancel()  # answered early: the rest of the body is not wanted
        return response

    def expect_body(self) -> None:
        """From now on body bytes are waited for."""
        self._deadline.expect(self._idle_seconds)

    def expect_nothing(self) -> None:
        """Nobody waits for the backend: a slow client's silence is not the backend's."""
        self._deadline.lift()

    def _missed(self, seconds: float) -> None:
        if self._head_waiter is not None:
            self.fail(ErrorKind.FIRST_BYTE_TIMEOUT, f"no response within {seconds:g} s")
        else:
            self.fail(ErrorKind.IDLE_TIMEOUT, f"silent for {seconds:g} s")

    async def _send_stream(self, body: AsyncIterator[bytes], idle_seconds: float) -> None:
        """Send body pieces as they come, no faster than the backend takes them."""
        async for piece in body:
            if self._closed or self._transport is None:
                return
            self._transport.write(piece)
            if self._writing_paused:
                self._drain_waiter = self._loop.create_future()
                try:
                    async with asyncio.timeout(idle_seconds if idle_seconds > 0 else None):
                        await self._drain_waiter
                except TimeoutError:
                    self.fail(ErrorKind.FIRST_BYTE_TIMEOUT, f"took no request byte for {idle_seconds:g} s")
                    return

    def resume_reading(self) -> None:
        """Read the socket again after `READ_HIGH_WATER_BYTES` stopped it."""
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, dropping what is not sent."""
        self.fail(ErrorKind.RESET, "closed by the router")

    def fail(self, kind: ErrorKind, detail: str) -> None:
        """End the running exchange with an error and close."""
        self._close()
        response, self._response = self._response, None
        if response is None:
            return
        error = UpstreamError(kind, detail)
        response.break_off(error)
        waiter, self._head_waiter = self._head_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def close(self) -> None:
        """Close an idle connection."""
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._deadline.close()
            if self._transport is not None:
                self._transport.abort()
            self._wake_sender()
            self._on_closed(self)

    def _wake_sender(self) -> None:
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._made_at = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the running exchange: well, if its body ends with the connection, as broken otherwise."""
        response = self._response
        if response is not None and self._until_close and exc is None and self._head_waiter is None:
            self._response = None
            self._close()
            response.finish()
        elif self._head_waiter is not None and self._head_bytes == 0:
            # In TLS 1.3 a server judges the client's certificate when the handshake is over for the client.
            detail = _lost(exc)
            if not isinstance(exc, SSLError) and self._judged_ours_lately():
                detail += " right after the TLS handshake: perhaps it asks for another certificate of ours"
            self.fail(ErrorKind.BAD_CERTIFICATE if refuses_ours(exc) else ErrorKind.RESET, detail)
        elif self._head_waiter is not None:
            self.fail(ErrorKind.BAD_RESPONSE, f"response head broke off ({_lost(exc)})")
        else:
            self.fail(ErrorKind.TRUNCATED, _lost(exc))
        self._transport = None

    def _judged_ours_lately(self) -> bool:
        """Whether the TLS handshake has only just been: many servers refuse a certificate without a word."""
        in_tls = self._transport is not None and self._transport.get_extra_info("sslcontext") is not None
        return in_tls and self.exchanges == 1 and self._loop.time() - self._made_at < _JUST_MADE_SECONDS

    def pause_writing(self) -> None:
        """Stop a streamed request body."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Go on with it."""
        self._writing_paused = False
        self._wake_sender()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        response = self._response
        if response is None:
            self._close()
            return
        if self._head_waiter is not None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._hand_on(response)
            self.fail(ErrorKind.BAD_RESPONSE, "protocol switch that nobody asked for")
        except httptools.HttpParserError as error:
            self._hand_on(response)
            self._fail_parse(error)
        else:
            if self._message_ended:
                self._release(response)
            elif self._head_waiter is None:
                self._deadline.extend()
                self._hand_on(response)
            elif self._head_bytes > MAX_RESPONSE_HEAD_BYTES:
                self.fail(ErrorKind.BAD_RESPONSE, f"response head over {MAX_RESPONSE_HEAD_BYTES} bytes")

    def _hand_on(self, response: Response) -> None:
        """Give the body bytes of one read to the response; stop reading when too many wait."""
        pieces = self._body
        if not pieces:
            return
        self._body = []
        if response.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces)) < READ_HIGH_WATER_BYTES:
            return
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _fail_parse(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        detail = str(cause) if isinstance(cause, _ResponseRefusedError) else f"not HTTP/1.1: {error}"
        self.fail(ErrorKind.TRUNCATED if self._head_waiter is None else ErrorKind.BAD_RESPONSE, detail)

    def _release(self, response: Response) -> None:
        """The response ended by its own framing: give the connection back, or close it."""
        self._response = None
        self._deadline.lift()
        reusable = self._reusable and not self._sending
        pieces, self._body = self._body, []
        if self._reading_paused:
            self.resume_reading()
        if not reusable:
            self._close()
        elif not self._closed:
            self.idle_since = self._loop.time()
            self._on_idle(self)
        if pieces:
            response.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces), last=True)
        response.finish()

    # httptools callbacks

    def on_message_begin(self) -> None:
        """Refuse a response that follows one that already ended."""
        if self._message_ended:
            raise _ResponseRefusedError("bytes after the end of the response")

    def on_status(self, status: bytes) -> None:
        """Keep the reason phrase (may come in pieces)."""
        if self._response is not None:
            self._response.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header as it is; trailers, which come after the head, are dropped."""
        if self._head_waiter is None or self._response is None:
            return
        self._response.headers.append((name, value))
        lowered = name.lower()
        if lowered in _NOTED:
            self._note(self._response, lowered, value)

    def _note(self, response: Response, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            response.content_length = int(value)
        elif name == b"content-type":
            response.content_type = response.content_type or value
        elif name == b"content-encoding":
            response.content_encoding = response.content_encoding or value
        elif name == b"connection":
            response.connection += (value,)
        else:
            self._chunked = True
            if value.strip().lower() != b"chunked":
                raise _ResponseRefusedError("transfer encoding other than chunked")

    def on_headers_complete(self) -> None:
        """The head is whole: tell the sender, unless it is an interim response."""
        response = self._response
        if response is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise _ResponseRefusedError("protocol switch that nobody asked for")
            response.forget_head()  # an interim response leaves nothing behind
            self._chunked = False
            return
        response.status = status
        self._deadline.lift()
        chunked = self._chunked
        if chunked:
            response.content_length = None
        no_body = self._method == b"HEAD" or status in (204, 304)
        self._until_close = not chunked and response.content_length is None and not no_body
        waiter, self._head_waiter = self._head_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._method == b"HEAD":
            # llhttp would wait for the body that the length announces; there is none after HEAD.
            self._message_ended = True
            self._reusable = False

    def on_body(self, data: bytes) -> None:
        """Keep body bytes until the end of this read."""
        if not self._message_ended:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Note that the response ended by its own framing."""
        if self._response is not None and self._response.status >= 200:
            self._message_ended = True
            # Only here: llhttp forgets the framing as soon as this callback returns.
            self._reusable = self._parser.should_keep_alive()


class _ResponseRefusedError(Exception):
    """Raised inside a parser callback to stop parsing."""


def _seen(task: asyncio.Task[None]) -> None:
    """Look at a task's error, so that asyncio does not report it: `exchange` has said what matters."""
    if not task.cancelled():
        task.exception()


def _lost(exc: Exception | None) -> str:
    if exc is None:
        return "closed by the backend"
    return tls_failure(exc) if isinstance(exc, SSLError) else f"{type(exc).__name__}: {exc}"
