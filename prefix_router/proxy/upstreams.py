"""The way to each backend: its connection pool, its Host value and its path prefix."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from prefix_router.routing.fleet import Backend
from prefix_router.upstream.pool import Pool, Timeouts

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A backend URL taken apart. host_header: as it belongs into `Host`. path: prefix without end slash."""

    host: str
    port: int
    tls: bool
    host_header: bytes
    path: bytes

    @classmethod
    def of(cls, url: str) -> Address:
        """Take apart a URL that the settings have checked."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(host, port, tls, parts.netloc.encode(), parts.path.rstrip("/").encode())


@dataclass(frozen=True, slots=True)
class Upstream:
    """A backend's address and its connections."""

    address: Address
    pool: Pool

    def target(self, origin_form: bytes) -> bytes:
        """Return the request target at the backend for the client's path and query."""
        return origin_form if not self.address.path else self.address.path + origin_form


class Upstreams:
    """Makes the way to a backend when it is first used, and closes it when the backend has left."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._by_url: dict[str, Upstream] = {}

    def of(self, backend: Backend) -> Upstream:
        """Return the way to `backend`. Backends with the same URL share it."""
        upstream = self._by_url.get(backend.url)
        if upstream is None:
            address = Address.of(backend.url)
            upstream = Upstream(address, self.pool(address, self._timeouts))
            self._by_url[backend.url] = upstream
        return upstream

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Use other timeouts from now on; running exchanges end with those they began with."""
        self._timeouts = timeouts
        for upstream in self._by_url.values():
            upstream.pool.timeouts = timeouts

    def pool(self, address: Address, timeouts: Timeouts) -> Pool:
        """Return a pool of its own for `address`, for probes say."""
        return Pool(address.host, address.port, timeouts, self._tls if address.tls else None)

    def retain(self, backends: Iterable[Backend]) -> None:
        """Close the ways to all backends but these; running exchanges end undisturbed."""
        urls = {backend.url for backend in backends}
        for url in [url for url in self._by_url if url not in urls]:
            self._by_url.pop(url).pool.close()

    def close(self) -> None:
        """Close all."""
        self.retain(())

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()
