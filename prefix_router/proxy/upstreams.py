"""The way to each backend: its connection pool, its Host value, its path prefix and its login."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prefix_router.routing.fleet import Backend
from prefix_router.upstream.pool import Pool, Timeouts

if TYPE_CHECKING:
    from prefix_router.tls import Tls

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A backend URL taken apart. host_header: as it belongs into `Host`. path: prefix without end slash.

    server_name: whom its certificate must be for; None for the host.
    """

    host: str
    port: int
    tls: bool
    host_header: bytes
    path: bytes
    server_name: str | None = None

    @classmethod
    def of(cls, url: str, server_name: str | None = None) -> Address:
        """Take apart a URL that the settings have checked."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(host, port, tls, parts.netloc.encode(), parts.path.rstrip("/").encode(), server_name)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A backend's address and its connections. authorization: what it is sent in place of the client's."""

    address: Address
    pool: Pool
    authorization: bytes | None = field(default=None, repr=False)

    def target(self, origin_form: bytes) -> bytes:
        """Return the request target at the backend for the client's path and query."""
        return origin_form if not self.address.path else self.address.path + origin_form


class Upstreams:
    """Makes the way to a backend when it is first used, and closes it when the backend has left."""

    def __init__(self, timeouts: Timeouts, tls: Tls | None = None) -> None:
        """tls: for `https://` backends; by default the system's authorities, and no certificate of ours."""
        self._timeouts = timeouts
        self._given_tls = tls
        self._by_url: dict[str, Upstream] = {}

    def of(self, backend: Backend) -> Upstream:
        """Return the way to `backend`. Backends with the same URL share it."""
        upstream = self._by_url.get(backend.url)
        if upstream is None:
            address = Address.of(backend.url, backend.server_name)
            upstream = Upstream(address, self.pool(address, self._timeouts), login_of(backend))
            self._by_url[backend.url] = upstream
        return upstream

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Use other timeouts from now on; running exchanges end with those they began with."""
        self._timeouts = timeouts
        for upstream in self._by_url.values():
            upstream.pool.timeouts = timeouts

    def set_tls(self, tls: Tls | None) -> None:
        """Make connections with `tls` from now on, and use no older one for another request."""
        if tls is self._given_tls:
            return
        self._given_tls = tls
        for url in [url for url, upstream in self._by_url.items() if upstream.address.tls]:
            self._by_url.pop(url).pool.close()

    def pool(self, address: Address, timeouts: Timeouts) -> Pool:
        """Return a pool of its own for `address`, for probes say."""
        if not address.tls:
            return Pool(address.host, address.port, timeouts)
        context = self._default_tls if self._given_tls is None else self._given_tls.context
        return Pool(address.host, address.port, timeouts, context, address.server_name)

    def retain(self, backends: Iterable[Backend]) -> None:
        """Close the ways to all backends but these; running exchanges end undisturbed.

        One that must prove another name gets new connections; another login goes over those that there are.
        """
        wanted = {backend.url: backend for backend in backends}
        for url, upstream in list(self._by_url.items()):
            backend = wanted.get(url)
            if backend is None or backend.server_name != upstream.address.server_name:
                self._by_url.pop(url).pool.close()
            else:
                self._by_url[url] = replace(upstream, authorization=login_of(backend))

    def close(self) -> None:
        """Close all."""
        self.retain(())

    @cached_property
    def _default_tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


def login_of(backend: Backend) -> bytes | None:
    """Return what a backend is sent as `Authorization`; None when it has no login of its own."""
    return None if backend.authorization is None else backend.authorization.encode()
