"""One request at a backend, exactly as it came, and the means to answer it in any way."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from conformance.wire import Head, chunk_bytes, read_chunks

if TYPE_CHECKING:
    from conformance.backend_connection import BackendConnection


class Exchange:
    """A request and its answer in the making.

    use: how many requests the connection carried before this one since the backend was reset. reused: whether
    it ever carried one. Times are of the monotonic clock.
    aborted_at: when the router went away before the script was done.
    """

    def __init__(self, head: Head, connection: BackendConnection, use: int, *, reused: bool) -> None:
        self.head = head
        self.connection = connection
        self.use = use
        self.reused = reused
        self.body = b""
        self.started_at = time.monotonic()
        self.ended_at: float | None = None
        self.aborted_at: float | None = None
        self._body_read = False

    @property
    def method(self) -> str:
        """The method."""
        return self.head.start.split(" ")[0]

    @property
    def path(self) -> str:
        """The request target, query included."""
        return self.head.start.split(" ")[1]

    def get(self, name: str) -> str | None:
        """Return the first value of a request header."""
        return self.head.get(name)

    def values(self, name: str) -> list[str]:
        """Return all values of a request header."""
        return self.head.values(name)

    def json(self) -> Any:
        """Return the decoded body. Raises ValueError."""
        return json.loads(self.body)

    @property
    def wants_stream(self) -> bool:
        """Whether the body says `stream: true`."""
        try:
            document = self.json()
        except ValueError:
            return False
        return isinstance(document, dict) and document.get("stream") is True

    async def read_body(self) -> bytes:
        """Read the whole request body (once). Raises ClosedError or BrokenError."""
        if not self._body_read:
            self._body_read = True
            body = bytearray()
            if self.head.chunked:
                await read_chunks(self.connection.inbox, body)
            else:
                await self.connection.inbox.exactly(int(self.head.get("content-length") or 0), body)
            self.body = bytes(body)
        return self.body

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are. Raises ClosedError."""
        await self.connection.send(data)

    async def respond(
        self,
        status: int = 200,
        body: bytes = b"{}",
        headers: Iterable[tuple[str, str]] = (),
        *,
        content_type: str = "application/json",
    ) -> None:
        """Send a whole answer with its length. Raises ClosedError."""
        length = [("Content-Length", str(len(body)))]
        if status == 204:
            length = []
        await self.raw(head_bytes(status, [("Content-Type", content_type), *headers, *length]) + body)

    async def start_stream(
        self,
        headers: Iterable[tuple[str, str]] = (),
        *,
        status: int = 200,
        content_type: str = "text/event-stream; charset=utf-8",
    ) -> None:
        """Send the head of a chunked answer. Raises ClosedError."""
        framing = [("Transfer-Encoding", "chunked")]
        await self.raw(head_bytes(status, [("Content-Type", content_type), *headers, *framing]))

    async def chunk(self, data: bytes) -> None:
        """Send one chunk. Raises ClosedError."""
        await self.raw(chunk_bytes(data))

    async def end_stream(self) -> None:
        """Send the last chunk. Raises ClosedError."""
        await self.raw(b"0\r\n\r\n")

    def close(self) -> None:
        """Close the connection, with FIN, after what was sent."""
        self.connection.close()

    def reset(self) -> None:
        """Close the connection with RST."""
        self.connection.reset()

    async def forever(self) -> None:
        """Do nothing until the router goes away (the script is cancelled then)."""
        await asyncio.Event().wait()


def head_bytes(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a response."""
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")
