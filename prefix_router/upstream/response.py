"""The response of one exchange: a complete head, and a body that is read as it arrives.

The connection feeds it, the relay reads it; neither waits for the other longer than it must. Bytes that
wait are handed over in one piece, so that a reader that fell behind catches up in one step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from prefix_router.upstream.errors import ErrorKind, UpstreamError

RawHeaders = list[tuple[bytes, bytes]]


class ResponseSource(Protocol):
    """The connection, as far as its response needs it."""

    def resume_reading(self) -> None:
        """Read the socket again if it was stopped."""

    def abort(self) -> None:
        """Close at once."""

    def fail(self, kind: ErrorKind, detail: str) -> None:
        """End the exchange with an error and close."""


class Response:
    """The response of one exchange: a complete head, and a body that is read as it arrives.

    content_length: the declared length in bytes, None when the body is chunked or ends with the
    connection. Read it to its end or call `abort`; both give the connection up.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_complete",
        "_connection",
        "_error",
        "_idle_deadline",
        "_idle_seconds",
        "_idle_timer",
        "_waiter",
        "content_length",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, connection: ResponseSource, idle_seconds: float) -> None:
        self.status = 0
        self.reason = b""
        self.headers: RawHeaders = []
        self.content_length: int | None = None
        self._connection: ResponseSource | None = connection
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._complete = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._idle_seconds = idle_seconds
        self._idle_deadline = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def complete(self) -> bool:
        """Whether the last body byte has arrived (it may still wait to be read)."""
        return self._complete

    async def read(self) -> bytes:
        """Return the body bytes that wait, or the next ones to arrive; b"" at the end.

        Raises UpstreamError (TRUNCATED, IDLE_TIMEOUT) when the body breaks off; bytes that arrived
        before the break are returned first.
        """
        while not self._chunks:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        chunk = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._connection is not None:
            self._connection.resume_reading()
        return chunk

    def abort(self) -> None:
        """Close the connection unless the response already ended. Safe to call at any time, repeatedly."""
        if self._connection is not None:
            self._connection.abort()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if self._idle_seconds > 0:
            # One timer per response, moved lazily: a stream of thousands of chunks sets it a few times.
            self._idle_deadline = loop.time() + self._idle_seconds
            if self._idle_timer is None:
                self._idle_timer = loop.call_at(self._idle_deadline, self._idle_expired, loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _idle_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle_timer = None
        if self._waiter is None or self._connection is None:
            # The reader is busy writing to a slow client: that silence is not the backend's.
            return
        if loop.time() < self._idle_deadline:
            self._idle_timer = loop.call_at(self._idle_deadline, self._idle_expired, loop)
            return
        self._connection.fail(ErrorKind.IDLE_TIMEOUT, f"silent for {self._idle_seconds:g} s")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _detach(self) -> None:
        self._connection = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._wake()

    def feed(self, data: bytes) -> int:
        """Take body bytes; return how many wait to be read."""
        self._chunks.append(data)
        self._buffered += len(data)
        self._wake()
        return self._buffered

    def finish(self) -> None:
        """The body has ended as it should."""
        self._complete = True
        self._detach()

    def break_off(self, error: UpstreamError) -> None:
        """The response cannot go on; `read` raises `error` once the bytes before it are read."""
        self._error = error
        self._detach()
