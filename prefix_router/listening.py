"""Sockets that accept connections for one protocol, in plain or in TLS, and can change between the two.

An event loop ties a TLS context to a server when it is made. To exchange it, another server is made over
copies of the same listening sockets, and then the first one stops: the kernel has one queue of connections
for all copies of a socket, so none that waits in it is refused, and those that were accepted are not touched.
A handshake that is under way ends with the context with which it began.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from prefix_router.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, Tls

logger = logging.getLogger(__name__)

BACKLOG = 128
"""Connections that the kernel holds until they are accepted, unless somebody says otherwise."""


class Listening:
    """Accepts connections, and makes a protocol with `factory` for each. `open` it, `close` it."""

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], tls: Tls | None, backlog: int = BACKLOG
    ) -> None:
        self._factory = factory
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []
        self._closed = False
        self.tls = tls
        """What is spoken: None for plain HTTP."""

    @property
    def port(self) -> int:
        """The port of the first socket."""
        port: int = self._servers[0].sockets[0].getsockname()[1]
        return port

    async def open(self, host: str, port: int, sockets: Sequence[socket.socket] = ()) -> None:
        """Accept on `sockets`, or at all addresses of `host`. Raises OSError; nothing listens then."""
        if sockets:
            self._servers = await self._serve(sockets, self.tls)
            return
        options = _options(self.tls)
        server = await asyncio.get_running_loop().create_server(
            self._factory, host, port, backlog=self._backlog, **options
        )
        self._servers = [server]

    async def exchange(self, tls: Tls | None) -> None:
        """Speak `tls` with whoever connects from now on. If that fails, it is logged and nothing changes."""
        if tls is self.tls or self._closed:
            return
        copies: list[socket.socket] = []
        try:
            for server in self._servers:
                copies += [socket.socket(fileno=os.dup(sock.fileno())) for sock in server.sockets]
            servers = await self._serve(copies, tls)
        except BaseException as error:
            for copy in copies:
                copy.close()
            if not isinstance(error, OSError):
                raise
            logger.error(
                "port %d: new clients still get the old certificate, reload again: %s", self.port, error
            )
            return
        former, self._servers, self.tls = self._servers, servers, tls
        logger.info("port %d: new clients get the new certificate", self.port)
        for server in former if not self._closed else (*former, *servers):
            server.close()

    def close(self) -> None:
        """Stop listening; connections live on."""
        self._closed = True
        for server in self._servers:
            server.close()

    async def _serve(self, sockets: Sequence[socket.socket], tls: Tls | None) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        try:
            for sock in sockets:
                servers += [
                    await loop.create_server(self._factory, sock=sock, backlog=self._backlog, **_options(tls))
                ]
        except BaseException:
            for server in servers:
                server.close()
            raise
        return servers


def _options(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl": tls.context,
        "ssl_handshake_timeout": HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
    }
