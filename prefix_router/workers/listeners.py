"""The sockets of the data port, bound by the pool and inherited by workers.

Each worker accepts on sockets of its own, and the kernel spreads new connections over all of them by a hash
of the addresses (SO_REUSEPORT). That the pool binds them has three uses: a port that cannot be had is known
before anything is started; port 0 is chosen once; and when a worker crashes its sockets stay open here, so
that connections which nobody had accepted yet wait for its successor instead of being reset.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Place:
    family: socket.AddressFamily
    address: tuple[Any, ...]


class Listeners:
    """Makes bound sockets that share the addresses of one host and port."""

    def __init__(self, places: list[_Place], reserved: list[socket.socket]) -> None:
        self._places = places
        self._reserved = reserved

    @classmethod
    async def reserve(cls, host: str, port: int) -> Self:
        """Take all addresses of `host` at `port` (0: any free one). Raises OSError when one is taken.

        The port stays taken until `close`, also while no worker lives.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        places: list[_Place] = []
        reserved: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
                wanted = _Place(socket.AddressFamily(family), (address[0], port, *address[2:]))
                if port:
                    # Sharing is among workers: another program, or another router, at this port is a mistake.
                    _bound(wanted, shared=False).close()
                sock = _bound(wanted, shared=True)
                reserved.append(sock)
                port = sock.getsockname()[1]
                places.append(_Place(wanted.family, sock.getsockname()))
        except OSError:
            for sock in reserved:
                sock.close()
            raise
        return cls(places, reserved)

    @property
    def port(self) -> int:
        """The port that was taken."""
        port: int = self._places[0].address[1]
        return port

    def sockets(self) -> list[socket.socket]:
        """Return new bound sockets, one for each address; they take connections once somebody listens."""
        return [_bound(place, shared=True) for place in self._places]

    def close(self) -> None:
        """Give the port back, as far as this process holds it."""
        for sock in self._reserved:
            sock.close()


def _bound(place: _Place, *, shared: bool) -> socket.socket:
    sock = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if place.family is socket.AddressFamily.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place.address)
    except OSError as error:
        sock.close()
        host, port = place.address[:2]
        raise OSError(error.errno, f"{host} port {port}: {error.strerror}") from None
    return sock
