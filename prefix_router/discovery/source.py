"""What a source of backends is: it says again and again, and completely, whom it knows.

A source yields whole sets, never additions and removals: a set that was missed or doubled does no harm, and
whoever follows it finds the difference. It yields `Trouble` instead of a set when it could not find out; the
last set then still holds. Retrying, backing off and reconnecting are its own business.

A source must never end, never yield a set that it has guessed, and never put a secret into the text of a
`Trouble`: that is logged and shown in `/status`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from prefix_router.routing.fleet import BackendName


class SourceName(Enum):
    """Where a backend was found. The values are metric labels; the order is the order of precedence."""

    STATIC = "static"
    FILE = "file"
    DNS = "dns"
    KUBERNETES = "kubernetes"


class Family(Enum):
    """Which addresses of a replica that has several are used."""

    AUTO = "auto"
    """Its IPv4 address, or the IPv6 one where it has no other."""
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    BOTH = "both"
    """Each address is a backend: right only where no replica has both kinds."""


@dataclass(frozen=True, slots=True)
class Found:
    """One backend as a source knows it; None for what the source does not say.

    url: normalised, as the settings do it. The other fields mean what they mean in `backends[]`.
    """

    name: BackendName
    url: str
    weight: int | None = None
    models: frozenset[str] | None = None
    server_name: str | None = None
    authorization: str | None = field(default=None, repr=False)
    kv_events: str | None = None
    kv_events_replay: str | None = None
    kv_events_ranks: int = 1


FoundSet: TypeAlias = tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A source could not find out, or not everything.

    message: for people, on one line, without secrets. found: the whole set nevertheless, where only single
    backends are in doubt; None keeps the last one.
    """

    message: str
    found: FoundSet | None = None


class Source(Protocol):
    """Somebody who knows backends."""

    def reports(self) -> AsyncGenerator[FoundSet | Trouble, None]:
        """Yield what is known, whenever it may have changed. Never ends by itself; is closed when dropped."""


class SourceOptions(Protocol):
    """What a source is made of: a value, so that equal options mean the same source."""

    def source(self) -> Source:
        """Make it. Nothing is opened or asked before its first report."""


def url_of(scheme: str, host: str, port: int, path: str = "") -> str:
    """Return the URL of a backend in the form of the settings: no port that the scheme implies."""
    host = f"[{host}]" if ":" in host else host
    implied = port == (443 if scheme == "https" else 80)
    return f"{scheme}://{host}{path}" if implied else f"{scheme}://{host}:{port}{path}"


def authority_of(host: str, port: int) -> str:
    """Return `host:port`, the name of a backend that has no better one."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
