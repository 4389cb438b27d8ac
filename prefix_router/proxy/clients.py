"""Who a request is from, by the key it shows: nothing but SHA-256 hashes of keys is held here.

A key stands in `Authorization: Bearer KEY`, `x-api-key` or `api-key`, the three headers in which clients of
OpenAI's and Anthropic's APIs send one. Where a request has several, the first of them in this order counts:
two answers to one question would let a request be one client here and another one in a log.

A plain SHA-256 is enough because keys are long and random (`prefix-router hash-key --generate`). The hash is
compared with every entry, each in constant time, so the time tells nobody how near a guess was. One hash and
O(keys) comparisons per request; a request never waits here, and no key is ever logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

from prefix_router.proxy.local_answers import HEALTH_PATHS

_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of the data port. keys: pairs of a key's SHA-256 digest (32 bytes) and a client's name."""

    keys: tuple[tuple[bytes, str], ...]

    def name(self, headers: Mapping[str, str]) -> str | None:
        """Return the client whose key the request shows, None when it shows none that is known.

        headers: of the request; their names are looked up in any case.
        """
        key = _key(headers)
        if key is None:
            return None
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, name in self.keys:
            if compare_digest(known, digest):
                found = name
        return found


def needs_key(method: str, path: str) -> bool:
    """Whether a request must show a key: load balancers that ask for the health have none."""
    return method not in ("GET", "HEAD") or path not in HEALTH_PATHS


def _key(headers: Mapping[str, str]) -> str | None:
    login = headers.get("Authorization")
    if login is not None:
        is_bearer = login[: len(_SCHEME)].lower() == _SCHEME
        return login[len(_SCHEME) :].strip() if is_bearer else None
    return headers.get("X-Api-Key") or headers.get("Api-Key")
