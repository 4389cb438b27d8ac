"""The response of one exchange: a complete head, and a body that is handed on as it arrives.

The connection feeds it. Whoever wants the body either reads it piece by piece, or has it poured: then each
piece goes from the socket's callback straight to the taker, and no task has to wake up for it. Bytes that
wait are handed over in one piece, so that a taker that fell behind catches up in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from prefix_router.upstream.errors import ErrorKind, UpstreamError

RawHeaders = list[tuple[bytes, bytes]]

Taker: TypeAlias = Callable[[bytes, bool], bool]
"""Takes the next bytes of a body, and whether they are the last; returns whether more may follow at once."""


class ResponseSource(Protocol):
    """The connection, as far as its response needs it."""

    def resume_reading(self) -> None:
        """Read the socket again if it was stopped."""

    def expect_body(self) -> None:
        """From now on the backend is waited for."""

    def expect_nothing(self) -> None:
        """The backend is not waited for: its silence means nothing."""

    def abort(self) -> None:
        """Close at once."""

    def fail(self, kind: ErrorKind, detail: str) -> None:
        """End the exchange with an error and close."""


class Response:
    """The response of one exchange: a complete head, and a body that is handed on as it arrives.

    content_length: the declared length in bytes, None when the body is chunked or ends with the
    connection. content_type, content_encoding: of the head, None when absent. connection: the values of
    its Connection headers. Read or pour it to its end, or call `abort`; both give the connection up.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_complete",
        "_connection",
        "_error",
        "_taker",
        "_waiter",
        "connection",
        "content_encoding",
        "content_length",
        "content_type",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, connection: ResponseSource) -> None:
        self.status = 0
        self.forget_head()
        self._connection: ResponseSource | None = connection
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._complete = False
        self._error: UpstreamError | None = None
        self._taker: Taker | None = None
        self._waiter: asyncio.Future[bool] | None = None

    def forget_head(self) -> None:
        """Begin anew with the head."""
        self.reason = b""
        self.headers: RawHeaders = []
        self.content_length: int | None = None
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.connection: tuple[bytes, ...] = ()

    @property
    def waiting(self) -> bool:
        """Whether body bytes have arrived that nobody has taken."""
        return bool(self._chunks)

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
        return self._collect()

    async def pour(self, taker: Taker) -> bool:
        """Hand body bytes to `taker` as they arrive; return True at the end of the body.

        Returns False as soon as `taker` does, which wants a pause; call it again after that. What arrives
        meanwhile is kept, and the socket is not read when it becomes much. Raises UpstreamError like `read`,
        and whatever `taker` raises.
        """
        while True:
            if self._chunks:
                if not taker(self._collect(), self._complete):
                    return False
            elif self._complete:
                return True
            elif self._error is not None:
                raise self._error
            else:
                self._taker = taker
                try:
                    if not await self._wait():
                        return False
                finally:
                    self._taker = None

    def abort(self) -> None:
        """Close the connection unless the response already ended. Safe to call at any time, repeatedly."""
        if self._connection is not None:
            self._connection.abort()

    def _collect(self) -> bytes:
        chunks = self._chunks
        chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._buffered = 0
        if self._connection is not None:
            self._connection.resume_reading()
        return chunk

    async def _wait(self) -> bool:
        """Wait for something to happen; False when that is a taker that wants a pause."""
        self._waiter = asyncio.get_running_loop().create_future()
        if self._connection is not None:
            self._connection.expect_body()
        try:
            return await self._waiter
        finally:
            self._waiter = None
            if self._connection is not None:
                self._connection.expect_nothing()

    def _wake(self, go_on: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(go_on)

    def _detach(self) -> None:
        self._connection = None
        self._wake()

    def feed(self, data: bytes, last: bool = False) -> int:
        """Take body bytes; return how many wait for somebody. `last`: `finish` is called next."""
        taker = self._taker
        if taker is None:
            self._chunks.append(data)
            self._buffered += len(data)
            self._wake()
            return self._buffered
        try:
            more = taker(data, last)
        except Exception as error:  # noqa: BLE001  (it belongs to whoever pours, not to the socket's callback)
            self._taker = None
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
            return 0
        if not more:
            self._taker = None
            self._wake(go_on=False)
        return 0

    def finish(self) -> None:
        """The body has ended as it should."""
        self._complete = True
        self._detach()

    def break_off(self, error: UpstreamError) -> None:
        """The response cannot go on; bytes that came before `error` are handed over first."""
        self._error = error
        self._detach()
