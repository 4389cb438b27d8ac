"""The URL of a backend, in the one form that the rest of the program can rely on.

People write `10.0.0.1:8000`, `http://host:8000/`, `http://host:8000/v1`; a client's path is appended to
whatever stands here, so a final slash would make `//v1` and a final `/v1` would make `/v1/v1`. Here all
of them become scheme, host, port and a path prefix without a final slash. Messages never repeat a user
name, a password or a query: these may be secrets, and messages end up in logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
"""RFC 3986, section 3.3; a percent sign is not looked into, because the path is passed on as it is."""


class BackendUrlError(Exception):
    """A text that is no URL of a backend. The message completes the name of the setting."""


@dataclass(frozen=True, slots=True)
class BackendUrl:
    """A normalised URL.

    host: lower case, an IPv6 address in brackets. port: the one that is dialled. path: "" or begins with
    a slash, never ends with one.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """`host:port`, always with the port: the name of a backend that has been given none."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """The URL, without a port that the scheme implies."""
        is_default = self.port == _DEFAULT_PORTS[self.scheme]
        return f"{self.scheme}://{self.host if is_default else self.authority}{self.path}"


def parse_backend_url(text: str) -> BackendUrl:
    """Read what an operator wrote. Raises BackendUrlError. O(length)."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BackendUrlError("expected printable ASCII without spaces (write a host name in its xn-- form)")
    scheme, _, rest = text.partition("://") if "://" in text else ("http", "", text)
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise BackendUrlError("expected http:// or https:// before the host")
    if "?" in rest or "#" in rest:
        raise BackendUrlError("expected nothing after the path: no query (?) and no fragment (#)")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        raise BackendUrlError("expected no user name or password before the host")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise BackendUrlError("expected host:port, with an IPv6 address in brackets: http://[::1]:8000")
    return BackendUrl(scheme, _host(parts["host"]), _port(parts["port"], scheme), _path_prefix(slash + path))


def host_port(host: str, port: int) -> str:
    """`host:port` as it stands in a URL: an IPv6 address gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(host: str) -> str:
    if not host:
        raise BackendUrlError("expected a host")
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except ValueError:
            raise BackendUrlError(f"expected an IPv6 address between [ and ], got {host[:60]}") from None
        if address.scope_id is not None:
            raise BackendUrlError("expected an IPv6 address without a zone (%)")
        return f"[{address.compressed}]"
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise BackendUrlError(f"expected an IPv4 address of four numbers, got {host[:60]}") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")):
        raise BackendUrlError(f"expected a host name or an IP address, got {host[:60]}")
    return host.lower()


def _port(digits: str | None, scheme: str) -> int:
    if digits is None:
        return _DEFAULT_PORTS[scheme]
    if not 0 < int(digits[:6] or 0) < 65_536:
        raise BackendUrlError("expected a port from 1 to 65535 after the host")
    return int(digits)


def _path_prefix(path: str) -> str:
    """Drop what a client's own path brings along: final slashes and a final `/v1`."""
    if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise BackendUrlError("expected a path prefix of plain segments, such as /replica-1")
    path = path.rstrip("/")
    while path.endswith("/v1"):
        path = path.removesuffix("/v1").rstrip("/")
    return path
