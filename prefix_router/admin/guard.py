"""Who may ask the admin listener for what: the name it is asked under, the token, and wrong tokens.

With a token configured, everything needs it but what is listed in `OPEN_PATHS`: whatever is added to the
listener later is closed until somebody opens it here. Compared are hashes, in constant time; the token itself
is nowhere in the configuration.

The name in `Host` is checked because a page on the web can have its own name resolve to the address of this
listener, and then read what it answers like a page of its own (DNS rebinding). Such a name must be one that
somebody can register, so IP addresses, names without a dot and the special suffixes pass; others must be
configured. Liveness probes are answered under any name: load balancers invent names, and there is nothing to
read.

An address that has sent `MAX_WRONG` wrong tokens is not listened to until `FORGET_SECONDS` after the first of
them; others are. `now` (seconds, monotonic) comes in as an argument. O(1) per request; at most
`MAX_ADDRESSES` addresses are remembered.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web

from prefix_router.admin.control import Reply, json_response
from prefix_router.observe.events import AdminRefusal

OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics", "/status", "/history", "/"})
"""Can be read without a token: probes, numbers, states, and the document of the page, which holds nothing."""

OPEN_PREFIXES: Final = ("/page/",)
"""Static parts of the page."""

ANY_HOST_PATHS: Final = frozenset({"/livez", "/readyz"})

UNREGISTRABLE: Final = (".localhost", ".local", ".internal", ".svc", ".home.arpa")
"""Ends of names that nobody can have in the public DNS, Kubernetes' service names among them."""

MAX_WRONG: Final = 10
FORGET_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 1024

_IPV6_NETWORK_BITS = 64
"""Who has one address of such a network has all of them."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what. token_sha256: hex, None asks for no token. allowed_hosts: without port."""

    token_sha256: str | None = None
    allowed_hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, token_sha256: str | None, allowed_hosts: Iterable[str]) -> Access:
        """Return it for settings as they are written."""
        hash_ = None if token_sha256 is None else token_sha256.lower()
        return cls(hash_, frozenset(host.lower().rstrip(".") for host in allowed_hosts))

    def knows_host(self, host: str) -> bool:
        """Whether the listener may be asked under this `Host`; "" is a client that named none."""
        name = _without_port(host).lower().rstrip(".")
        if not name or "." not in name or name.endswith(UNREGISTRABLE) or name in self.allowed_hosts:
            return True
        return _is_address(name)

    def accepts(self, token: str) -> bool:
        """Whether this is the token. Takes the same time for every wrong one of its length."""
        found = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        return self.token_sha256 is not None and hmac.compare_digest(found, self.token_sha256)


class WrongTokens:
    """Counts wrong tokens by address, and says when somebody has sent enough of them."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, address: str, now: float) -> None:
        """Note a wrong one."""
        key = _network(address)
        since, number = self._by_address.pop(key, (now, 0))
        if now - since >= FORGET_SECONDS:
            since, number = now, 0
        self._by_address[key] = (since, number + 1)
        if len(self._by_address) > MAX_ADDRESSES:
            self._by_address.popitem(last=False)

    def wait_seconds(self, address: str, now: float) -> float:
        """Return for how long this address is not listened to; 0 when it is."""
        since, number = self._by_address.get(_network(address), (now, 0))
        return max(since + FORGET_SECONDS - now, 0.0) if number >= MAX_WRONG else 0.0


class Guard:
    """Stands before every route of the admin listener. `access` may be assigned: it holds from then on."""

    def __init__(
        self, access: Access, clock: Callable[[], float], refused: Callable[[AdminRefusal], None]
    ) -> None:
        """clock: seconds, monotonic. refused: is told of every request that is refused."""
        self.access = access
        self._clock = clock
        self._refused = refused
        self._wrong = WrongTokens()

    def middleware(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        """Return it as aiohttp wants it."""

        @web.middleware
        async def guard(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            refusal = self.refusal(request)
            return await handler(request) if refusal is None else refusal

        return guard

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return what a request that may not be served is answered; None when it may."""
        access, path = self.access, request.path
        host = request.headers.get("Host", "")
        if path not in ANY_HOST_PATHS and not access.knows_host(host):
            message = f"asked under a name that is not in admin.allowed_hosts: {_without_port(host)[:253]}"
            return self._refuse(AdminRefusal.HOST, HTTPStatus.MISDIRECTED_REQUEST, message)
        if access.token_sha256 is None or _is_open(request.method, path):
            return None
        address, now = request.remote or "", self._clock()
        if (wait := self._wrong.wait_seconds(address, now)) > 0:
            message = "too many wrong tokens from this address"
            retry = {"Retry-After": str(int(wait) + 1)}
            return self._refuse(AdminRefusal.TOKEN_LIMIT, HTTPStatus.TOO_MANY_REQUESTS, message, retry)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and access.accepts(token.strip()):
            return None
        challenge = {"WWW-Authenticate": 'Bearer realm="prefix-router admin"'}
        if not scheme:
            message = "needs the admin token: Authorization: Bearer TOKEN"
            return self._refuse(AdminRefusal.TOKEN_MISSING, HTTPStatus.UNAUTHORIZED, message, challenge)
        self._wrong.count(address, now)
        return self._refuse(AdminRefusal.TOKEN_WRONG, HTTPStatus.UNAUTHORIZED, "wrong admin token", challenge)

    def _refuse(
        self, why: AdminRefusal, status: HTTPStatus, message: str, headers: dict[str, str] | None = None
    ) -> web.Response:
        self._refused(why)
        response = json_response(Reply(status, {"error": message}))
        response.headers.update(headers or {})
        return response


def _is_open(method: str, path: str) -> bool:
    return method in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith(OPEN_PREFIXES))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _network(address: str) -> str:
    """What shares one count: an IPv4 address, or the network of an IPv6 one."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(int(found) >> _IPV6_NETWORK_BITS)
    return str(found)
