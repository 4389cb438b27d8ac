"""What browsers must hear before a page of another origin may use the data port (Fetch standard, CORS).

The router answers preflights itself, before anybody asks for a key: a browser sends none with them. Every
response, relayed ones and errors included, carries the same few lines, because a page cannot even read an
error without them. A backend's own lines of these names are dropped where the router speaks for it.

Cookies are never allowed (`Access-Control-Allow-Credentials` is not sent), so "*" is no danger beyond what
every client that is no browser can do anyway. O(1) per request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CORS_HEADERS: Final = frozenset(
    {
        b"access-control-allow-credentials",
        b"access-control-allow-headers",
        b"access-control-allow-methods",
        b"access-control-allow-origin",
        b"access-control-expose-headers",
        b"access-control-max-age",
        b"access-control-allow-private-network",
    }
)
"""Response headers that only the router writes while it answers browsers itself."""

ANY: Final = "*"

_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_VARY: Final = b"Vary: Origin\r\n"
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_MAX_ASKED_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class Cors:
    """Who may call from a browser. origins, allow_headers: exact, or `ANY`."""

    origins: frozenset[str]
    allow_headers: tuple[str, ...]
    expose_headers: tuple[str, ...]
    max_age_seconds: int

    def lines(self, origin: str | None) -> bytes:
        """Return the header lines for a response to a page of `origin`; None: no page has asked."""
        if ANY in self.origins:
            return b"Access-Control-Allow-Origin: *\r\n" + self._exposed() if origin is not None else b""
        if origin is None or origin not in self.origins:
            return _VARY  # or a cache would give this answer to a page that may read it, and the reverse
        return b"Access-Control-Allow-Origin: %b\r\n%b%b" % (origin.encode(), _VARY, self._exposed())

    def preflight(self, method: str, headers: Mapping[str, str]) -> bytes | None:
        """Return the lines that answer a browser's question, besides `lines`; None for any other request."""
        if method != "OPTIONS" or "Origin" not in headers:
            return None
        if "Access-Control-Request-Method" not in headers:
            return None
        if ANY not in self.origins and headers["Origin"] not in self.origins:
            return b""
        allowed = ", ".join(self.allow_headers)
        if ANY in self.allow_headers:
            # Not a plain "*": that would leave out Authorization, the one header that everybody sends.
            allowed = headers.get("Access-Control-Request-Headers", "").strip()
            if len(allowed) > _MAX_ASKED_CHARACTERS or _NAMES.fullmatch(allowed) is None:
                allowed = ""
        lines = b"Access-Control-Allow-Methods: %b\r\n" % _METHODS
        if allowed:
            lines += b"Access-Control-Allow-Headers: %b\r\nVary: Access-Control-Request-Headers\r\n" % (
                allowed.encode()
            )
        return lines + b"Access-Control-Max-Age: %d\r\n" % self.max_age_seconds

    def _exposed(self) -> bytes:
        if not self.expose_headers:
            return b""
        return b"Access-Control-Expose-Headers: %b\r\n" % ", ".join(self.expose_headers).encode()
