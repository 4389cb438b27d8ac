"""Reading a client's request body, bounded.

A body that may hold a prompt is read whole: the key needs it, and a retry needs it again. Anything else
(multipart audio, say) is passed on as it comes, so that an upload costs no memory; it can be retried
only as long as none of it was sent.

Whatever touches all of a large body at once holds up everything else. So one is kept in blocks, is in memory
once, and is sent and freed block by block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from prefix_router.proxy.blocks import BLOCK_BYTES, Blocks
from prefix_router.proxy.client_request import ClientRequest


class BodyTooLargeError(Exception):
    """The body is larger than the limit."""


class BodyBrokenError(Exception):
    """The body's framing is broken."""


class BodyTimeoutError(Exception):
    """The client stopped sending its body."""


_STREAMED_TYPES = ("multipart/", "audio/", "video/", "image/", "application/octet-stream")


def is_streamed(content_type: str | None) -> bool:
    """Whether a body of this type is passed on as it comes."""
    return content_type is not None and content_type.lower().lstrip().startswith(_STREAMED_TYPES)


class RequestBody(Protocol):
    """A request body on its way to a backend.

    length: bytes, None when it goes chunked. bytes_read: how much came from the client so far.
    """

    @property
    def length(self) -> int | None:
        """Return the length that the request head announces."""

    @property
    def bytes_read(self) -> int:
        """Return how many bytes the client has sent."""

    @property
    def replayable(self) -> bool:
        """Whether it can be sent (again) from its beginning."""

    def wire(self) -> bytes | AsyncIterator[bytes]:
        """Return it as it goes on the wire."""

    def release(self) -> None:
        """Let go of it: it will not be sent again."""


class WholeBody:
    """A body that was read to its end. Its bytes are kept until `release`, not until the response ends."""

    def __init__(self, data: bytes | Blocks) -> None:
        self.data: bytes | Blocks | None = data
        self.length = len(data)
        self.bytes_read = len(data)

    @property
    def replayable(self) -> bool:
        """Whether it is still at hand."""
        return self.data is not None

    def wire(self) -> bytes | AsyncIterator[bytes]:
        """Return the bytes as the client sent them."""
        assert self.data is not None, "sent again after it was released"
        return self.data if isinstance(self.data, bytes) else _by_blocks(self.data)

    def release(self) -> None:
        """Free the bytes: a long stream must not hold a large prompt."""
        data, self.data = self.data, None
        if isinstance(data, Blocks):
            data.free()


class StreamedBody:
    """A body that is passed on as it comes, framed for the wire."""

    def __init__(self, request: ClientRequest, max_bytes: int, idle_seconds: float) -> None:
        self._request = request
        self._max_bytes = max_bytes
        self._idle_seconds = idle_seconds
        self.length = _declared_length(request, max_bytes)
        self.bytes_read = 0
        self.replayable = True

    async def wire(self) -> AsyncIterator[bytes]:
        """Yield the bytes for the wire: as they are, or chunk by chunk when there is no length."""
        self.replayable = False
        async for piece in _pieces(self._request, self._max_bytes, self._idle_seconds):
            self.bytes_read += len(piece)
            yield piece if self.length is not None else b"%x\r\n%b\r\n" % (len(piece), piece)
        if self.length is None:
            yield b"0\r\n\r\n"

    def release(self) -> None:
        """Nothing is kept."""


def whole_at_hand(request: ClientRequest, max_bytes: int) -> WholeBody | None:
    """Return a body that has come with its head, as most do; None if it is to be waited for, or broken.

    Raises BodyTooLargeError.
    """
    content = request.content
    if not content.is_eof() or content.exception() is not None or content.total_bytes > BLOCK_BYTES:
        return None
    if content.total_bytes > max_bytes:
        raise BodyTooLargeError
    return WholeBody(content.read_nowait())


async def read_whole(request: ClientRequest, max_bytes: int, idle_seconds: float) -> WholeBody:
    """Read the whole body. Raises the errors of this module. idle_seconds: 0 for no bound."""
    blocks = Blocks()
    try:
        async for piece in _pieces(request, max_bytes, idle_seconds):
            blocks.append(piece)
    except BaseException:
        blocks.free()
        raise
    return WholeBody(blocks if len(blocks) > BLOCK_BYTES else blocks.read(0, BLOCK_BYTES))


async def _by_blocks(blocks: Blocks) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block
        await asyncio.sleep(0)  # a backend that takes everything at once must not hold up the others


def _declared_length(request: ClientRequest, max_bytes: int) -> int | None:
    length = request.content_length
    if length is not None and length > max_bytes:
        raise BodyTooLargeError
    if length is None and not request.body_exists:
        return 0
    return length


async def _pieces(request: ClientRequest, max_bytes: int, idle_seconds: float) -> AsyncIterator[bytes]:
    _declared_length(request, max_bytes)
    content = request.content
    total = 0
    try:
        while not content.at_eof():
            async with asyncio.timeout(idle_seconds if idle_seconds > 0 else None):
                piece = await content.readany()
            if not piece:
                continue
            total += len(piece)
            if total > max_bytes:
                raise BodyTooLargeError
            yield piece
    except TimeoutError as error:
        raise BodyTimeoutError from error
    except (RequestPayloadError, HttpProcessingError) as error:
        raise BodyBrokenError(str(error)) from error
