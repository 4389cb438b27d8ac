"""One connection to a scriptable backend: bytes in, requests out, and the moment the router left.

Not built on streams: those learn of a closed connection only when somebody reads, and a backend that is
busy answering would not notice.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, cast

from conformance.exchange import Exchange
from conformance.wire import BrokenError, ClosedError, Inbox, read_head

if TYPE_CHECKING:
    from conformance.backend import Backend

_HIGH_WATER_BYTES = 64 * 1024


class BackendConnection(asyncio.Protocol):
    """Serves requests one after the other.

    gone_at: when the router closed, None while it has not. uses: requests since the backend's last reset.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.inbox = Inbox(self._read_again)
        self.gone_at: float | None = None
        self.busy = False
        self.uses = 0
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.backend.connections.add(self)
        self.backend.connections_made += 1
        if self.backend.silent:
            self._transport.pause_reading()
            return
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="backend connection")

    def data_received(self, data: bytes) -> None:
        """Keep what came; a script that does not read holds the router back."""
        self.inbox.feed(data)
        if len(self.inbox.buffer) > _HIGH_WATER_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The router has closed."""
        self._gone()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over, whoever ended it."""
        self._gone(reset=exc is not None)
        self.backend.connections.discard(self)
        self._writable.set()

    def pause_writing(self) -> None:
        """The router takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It takes more again."""
        self._writable.set()

    async def send(self, data: bytes) -> None:
        """Send raw bytes, and wait while the router does not take them. Raises ClosedError."""
        if self._transport is None or self._transport.is_closing():
            raise ClosedError
        self._transport.write(data)
        await self._writable.wait()

    def close(self) -> None:
        """Close with FIN, after what was sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Close with RST; what was sent and not delivered yet is lost."""
        if self._transport is not None:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def stop_reading(self) -> None:
        """Take no more bytes out of the kernel until a read asks for them."""
        if self._transport is not None:
            self._transport.pause_reading()

    def _read_again(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _gone(self, *, reset: bool = False) -> None:
        if self.gone_at is None:
            self.gone_at = time.monotonic()
        self.inbox.end(reset=reset)
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        used = False
        try:
            while True:
                async with asyncio.timeout(self.backend.idle_close_seconds if used else None):
                    head = await read_head(self.inbox)
                exchange = Exchange(head, self, self.uses, reused=used)
                self.uses += 1
                used = True
                self.busy = True
                await self.backend.serve(exchange, self)
                await exchange.read_body()
                self.busy = False
        except (ClosedError, BrokenError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001  (a script is the case's code; the runner reports it)
            self.backend.script_errors.append(f"{type(error).__name__}: {error}")
        finally:
            self.busy = False
            self.close()
