"""Idle connections to one backend, newest first, and the making of new ones.

vLLM closes a connection that was idle for five seconds, and a request that meets that close is lost or
must be sent again. So an idle connection lives shorter here than there, and the newest is taken first:
the old ones age out instead of being kept alive by turns. There is no upper bound on connections; the
router bounds requests, and a queue for sockets would only hide the backend's load.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLCertVerificationError, SSLContext, SSLError

from prefix_router.upstream.connection import Connection
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from prefix_router.upstream.patience import Patience
from prefix_router.upstream.response import Response
from prefix_router.upstream.tls_failures import refuses_ours, tls_failure


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bounds of one exchange, in seconds; 0 means none.

    keepalive_seconds: how long an idle connection may be reused; below the backend's own value.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 600.0
    idle_seconds: float = 300.0
    keepalive_seconds: float = 4.0


class Pool:
    """Connections to one backend address. `close` it when the backend leaves the fleet.

    `timeouts` may be assigned: they hold for exchanges and idle connections from then on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeouts: Timeouts,
        ssl: SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """ssl: for TLS. server_name: whom the certificate must be for, also sent as SNI; else `host`."""
        self._host = host
        self._port = port
        self.timeouts = timeouts
        self._ssl = ssl
        self._server_name = server_name if ssl is not None else None
        self._idle: list[Connection] = []
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def idle_connections(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    def send(
        self,
        method: bytes,
        head: bytes,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        fresh: bool = False,
        timeouts: Timeouts | None = None,
    ) -> Awaitable[Response]:
        """Send a request on an idle connection, or on a new one (always with `fresh`). To be awaited at once.

        timeouts: of this exchange; the pool's own by default.
        Returns the response with a complete head; raises UpstreamError, see `Connection.exchange`.
        """
        timeouts = timeouts or self.timeouts
        connection = None if fresh else self._take_idle()
        if connection is None:
            return self._send_anew(method, head, body, timeouts)
        return connection.exchange(method, head, body, timeouts.first_byte_seconds, timeouts.idle_seconds)

    async def _send_anew(
        self, method: bytes, head: bytes, body: bytes | AsyncIterator[bytes], timeouts: Timeouts
    ) -> Response:
        connection = await self._connect(timeouts.connect_seconds)
        return await connection.exchange(
            method, head, body, timeouts.first_byte_seconds, timeouts.idle_seconds
        )

    def close(self) -> None:
        """Close idle connections; those in use are closed when their response ends."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> Connection | None:
        idle = self._idle
        if not idle:
            return None
        expired = asyncio.get_running_loop().time() - self.timeouts.keepalive_seconds
        while idle:
            connection = idle.pop()
            if connection.idle_since > expired and connection.usable:
                return connection
            connection.close()
        return None

    async def _connect(self, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        where = f"{self._host}:{self._port}"
        try:
            async with Patience(seconds):
                transport, connection = await loop.create_connection(
                    lambda: Connection(loop, self._put_idle, self._forget),
                    self._host,
                    self._port,
                    ssl=self._ssl,
                    server_hostname=self._server_name,
                )
        except TimeoutError as error:
            raise UpstreamError(ErrorKind.CONNECT_FAILED, f"{where}: none within {seconds:g} s") from error
        except OSError as error:  # ssl.SSLError and socket.gaierror are OSErrors too
            raise UpstreamError(_kind(error), f"{where}: {_cause(error)}") from error
        sock = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            # A backend whose host vanished during a long prefill is noticed by the kernel.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _put_idle(self, connection: Connection) -> None:
        if self._closed or self.timeouts.keepalive_seconds <= 0:
            connection.close()
            return
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(self.timeouts.keepalive_seconds, self._reap)

    def _forget(self, connection: Connection) -> None:
        with suppress(ValueError):
            self._idle.remove(connection)

    def _reap(self) -> None:
        """Close what has been idle for too long. The list is ordered by the time of return."""
        self._reaper = None
        loop = asyncio.get_running_loop()
        expired = loop.time() - self.timeouts.keepalive_seconds
        while self._idle and self._idle[0].idle_since <= expired:
            self._idle[0].close()
        if self._idle:
            when = self._idle[0].idle_since + self.timeouts.keepalive_seconds
            self._reaper = loop.call_at(when, self._reap)


_PROOF = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
_OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM}
)


def _kind(error: OSError) -> ErrorKind:
    """Tell a backend that is not there from a moment's trouble, and both from trouble of our own."""
    if isinstance(error, SSLCertVerificationError) or refuses_ours(error):
        return ErrorKind.BAD_CERTIFICATE
    if isinstance(error, SSLError):
        return ErrorKind.CONNECT_FAILED
    if isinstance(error, socket.gaierror):
        absent = error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        return ErrorKind.UNREACHABLE if absent else ErrorKind.CONNECT_FAILED
    if error.errno in _OURS:
        return ErrorKind.EXHAUSTED
    if error.errno in _PROOF or error.errno is None:  # None: asyncio's sum of several refused addresses
        return ErrorKind.UNREACHABLE
    return ErrorKind.CONNECT_FAILED


def _cause(error: OSError) -> str:
    """The system's own words: event loops put addresses and tuples into theirs."""
    if isinstance(error, SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, SSLError):
        return tls_failure(error)
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error)
    return os.strerror(error.errno)
