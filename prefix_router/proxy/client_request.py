"""What the data path sees of a client's request: its head, the body as it arrives, and its connection.

aiohttp's parser made the parts. Its request object is not used: it brings cookies, forms, URLs and a task of
its own, none of which a proxy needs, and costs about as much as a routing decision.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aiohttp import HttpVersion
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy


class ClientConnection(Protocol):
    """The connection that a request came on."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """Where bytes for the client are written; None when it has been closed."""

    @property
    def writing_paused(self) -> bool:
        """Whether enough bytes wait for the client."""

    async def drained(self) -> None:
        """Wait until the client has taken bytes. Raises ConnectionResetError when it has gone."""


class Head(Protocol):
    """The head of a request, as aiohttp's parser gives it. path: the request target as it was sent."""

    method: str
    path: str
    version: HttpVersion
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    should_close: bool


class ClientRequest:
    """One request.

    remote: the address at the other end of its connection, "" when unknown. scheme: http or https, as that
    connection speaks. keep_alive: as the client wants it.
    """

    __slots__ = (
        "connection",
        "content",
        "headers",
        "keep_alive",
        "method",
        "raw_headers",
        "remote",
        "scheme",
        "target",
        "version",
    )

    def __init__(
        self,
        head: Head,
        content: StreamReader,
        connection: ClientConnection,
        remote: str,
        scheme: bytes = b"http",
    ) -> None:
        self.method = head.method
        self.target = head.path
        self.version = head.version
        self.headers = head.headers
        self.raw_headers = head.raw_headers
        self.keep_alive = not head.should_close
        self.content = content
        self.connection = connection
        self.remote = remote
        self.scheme = scheme

    @property
    def content_length(self) -> int | None:
        """The length that the head announces, in bytes; None for a chunked body, or none."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

    @property
    def body_exists(self) -> bool:
        """Whether the head announces a body."""
        return self.content is not EMPTY_PAYLOAD
