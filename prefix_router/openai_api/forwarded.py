"""Who the client is, when gateways stand between it and the router: what their headers say, believed in turn.

A client can write anything into `X-Forwarded-For`; a gateway appends the address that it saw itself. So the
list is walked from the right: as long as an address belongs to a trusted proxy, the entry to its left was
written by that proxy and is believed. The first one that is not trusted is the client; what stands left of it
is what the client said of itself, and is dropped. `X-Forwarded-Proto` and `-Host`, and `Forwarded` (RFC 7239)
where there is no `X-Forwarded-For`, are believed when the connection itself comes from a trusted proxy.

Pure. O(entries), and at most `MAX_HOPS` of them are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

MAX_HOPS = 32
"""Proxies in a row that are believed; a longer list is a client's joke."""

_SCHEMES = (b"http", b"https")
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*')
_HOST = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Where a request came from, as far as it can be believed.

    address: the client's, "" when unknown. chain: the value of `X-Forwarded-For` for a backend. scheme: http
    or https, as the client used it. host: the `Host` that the client asked for, None when it sent none.
    """

    address: str
    chain: bytes
    scheme: bytes
    host: bytes | None


class TrustedProxies:
    """The addresses whose word is taken."""

    def __init__(self, networks: Iterable[str]) -> None:
        """networks: CIDRs such as `10.0.0.0/8`, or single addresses. Raises ValueError."""
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(
            ip_network(network, strict=False) for network in networks
        )

    def trusts(self, address: str) -> bool:
        """Whether `address` is one of them. What is no address is not."""
        if not self._networks or not address:
            return False
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def judge(
        self, peer: str, headers: Iterable[tuple[bytes, bytes]], *, scheme: bytes, host: bytes | None
    ) -> Forwarded:
        """Say where a request came from. peer, scheme, host: as the router itself sees them."""
        if not self.trusts(peer):
            return Forwarded(peer, peer.encode(), scheme, host)
        told: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            lowered = name.lower()
            if lowered == b"forwarded" or lowered.startswith(b"x-forwarded-"):
                told.setdefault(lowered, []).append(value)
        if b"x-forwarded-for" not in told and b"forwarded" in told:
            elements = _elements(b",".join(told[b"forwarded"]))
            entries = [_address(element.get("for", "")) for element in elements]
            nearest = elements[-1] if elements else {}
            protos = [nearest.get("proto", "").encode()]
            hosts = [nearest.get("host", "").encode()]
        else:
            line = b",".join(told.get(b"x-forwarded-for", ())).decode("latin-1")
            entries = [_address(entry) for entry in line.split(",")]
            protos, hosts = told.get(b"x-forwarded-proto", []), told.get(b"x-forwarded-host", [])
        hops = self._hops(peer, entries)
        return Forwarded(
            hops[0],
            ", ".join(hops).encode(),
            _believable(protos, scheme),
            next((value for value in hosts[-1:] if _HOST.fullmatch(value)), host),
        )

    def _hops(self, peer: str, entries: Sequence[str | None]) -> list[str]:
        """The client, then the proxies that its request came through, the nearest last."""
        hops = [peer]
        for entry in reversed(entries[-MAX_HOPS:]):
            if entry is None:
                break
            hops.append(entry)
            if not self.trusts(entry):
                break
        hops.reverse()
        return hops


def _believable(values: Sequence[bytes], own: bytes) -> bytes:
    """The scheme that the last of `values` names: several, separated by commas, stand for several hops."""
    last = values[-1].rpartition(b",")[2].strip().lower() if values else b""
    return last if last in _SCHEMES else own


def _address(text: str) -> str | None:
    """Return the address in one entry, without a port; None for anything else, such as `unknown`."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _elements(value: bytes) -> list[dict[str, str]]:
    """Read `Forwarded`: `for=192.0.2.1;proto=https, for="[2001:db8::1]:47011"`. Broken parts give nothing."""
    elements: list[dict[str, str]] = [{}]
    text = value.decode("latin-1")
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is not None:
            name, found = pair[1].lower(), pair[2]
            elements[-1].setdefault(name, re.sub(r"\\(.)", r"\1", found[1:-1]) if found[:1] == '"' else found)
            at = pair.end()
        if at < len(text):
            if text[at] == ",":
                elements.append({})
            at += 1
    return elements
