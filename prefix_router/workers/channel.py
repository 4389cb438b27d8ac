"""Messages over a stream socket: four bytes of length, then MessagePack.

The two ends are the pool and one worker, over a socket pair that nobody else can open. A message that does
not decode is a mistake of ours; the channel closes on it, which both ends treat as the death of the other.
`send` never waits and never grows without bound: when the other end has stopped reading, it says so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

import msgspec

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""What waits for a reader that does not read, before `send` refuses."""

_LENGTH_BYTES = 4
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024

_In = TypeVar("_In")
_Out = TypeVar("_Out", bound=msgspec.Struct)


class Channel(asyncio.Protocol, Generic[_In, _Out]):
    """One end. Callbacks run in the event loop; after `closed` there are none.

    received: called with each message. closed: called once, when the other end is gone.
    """

    def __init__(self, incoming: object, received: Callable[[_In], None], closed: Callable[[], None]) -> None:
        """`incoming` is the type (a union of tagged structs) of what comes in."""
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        self._received = received
        self._closed = closed
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()

    async def open(self, end: socket.socket) -> None:
        """Take over one end of a socket pair."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def send(self, message: _Out) -> bool:
        """Send a message. False when it was not taken: the other end is gone or has stopped reading."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            return False
        data = self._encoder.encode(message)
        transport.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        return True

    def close(self) -> None:
        """Send what waits, then close."""
        if self._transport is not None:
            self._transport.close()

    async def flushed(self, seconds: float) -> None:
        """Send what waits and close; give up after `seconds`."""
        self.close()
        if self._transport is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), seconds)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand on every message that is complete."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(buffer[start:body], "big")
            if end - body > _MAX_MESSAGE_BYTES:
                self._break(f"a message of {end - body} bytes")
                return
            if end > len(buffer):
                break
            try:
                message = self._decoder.decode(bytes(buffer[body:end]))
            except msgspec.DecodeError as error:
                self._break(str(error))
                return
            self._received(message)
            start = end
        del buffer[:start]

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the owner."""
        self._transport = None
        self._buffer.clear()
        self._gone.set()
        self._closed()

    def _break(self, cause: str) -> None:
        logger.error("control channel closed: %s", cause)
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()
