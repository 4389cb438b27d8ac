"""Asking a name server, with the difference between "there are none" and "I do not know".

    answered        records, in a stable order, and for how long they hold
    answered empty  the server is sure that there are none: NXDOMAIN, or no record of this kind
    DnsError        nobody could say: SERVFAIL, REFUSED, a timeout, a broken answer

c-ares asks (through aiodns): truncated answers are asked again over TCP, several servers are tried in turn,
and no other program on the host is bothered. Names are taken as complete: no search domains, no /etc/hosts.
One question takes `QUESTION_SECONDS` at most for each server and try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.discovery.source import Family

if TYPE_CHECKING:
    from aiodns import DNSResolver

QUESTION_SECONDS = 2.0
_TRIES = 2


class DnsError(Exception):
    """A question has no answer. The message is the reason, without the name that was asked for."""


@dataclass(frozen=True, slots=True)
class Service:
    """One SRV record. target: a host name without the final dot. weight: 0 to 65535."""

    target: str
    port: int
    priority: int
    weight: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """IP addresses, sorted; ttl_seconds: how long they hold, None where nothing says so."""

    addresses: tuple[str, ...]
    ttl_seconds: float | None


@dataclass(frozen=True, slots=True)
class Services:
    """Services, sorted; ttl_seconds: how long they hold, None where nothing says so."""

    services: tuple[Service, ...]
    ttl_seconds: float | None


class Questions:
    """Asks. Make it in a running event loop and close it."""

    def __init__(self, resolvers: Sequence[str], question_seconds: float = QUESTION_SECONDS) -> None:
        """resolvers: `address`, `address:port` or `[address]:port`; those of the system when empty."""
        from aiodns import DNSResolver

        self._resolver: DNSResolver = DNSResolver(
            nameservers=list(resolvers) or None, timeout=question_seconds, tries=_TRIES
        )

    async def close(self) -> None:
        """Give up what is being asked."""
        await self._resolver.close()

    async def addresses(self, name: str, family: Family) -> Addresses:
        """Return the addresses of a name. Raises DnsError.

        With both kinds wanted, one kind that fails does not hide the other: some servers never answer for
        AAAA. Nothing found and one failure is a failure.
        """
        kinds = {
            Family.IPV4: ("A",),
            Family.IPV6: ("AAAA",),
            Family.AUTO: ("A", "AAAA"),
            Family.BOTH: ("A", "AAAA"),
        }[family]
        answers: list[Addresses] = []
        failure: DnsError | None = None
        for answer in await asyncio.gather(*(self._of(name, kind) for kind in kinds), return_exceptions=True):
            if isinstance(answer, Addresses):
                answers.append(answer)
            elif isinstance(answer, DnsError):
                failure = answer
            else:
                raise answer
        with_any = [answer for answer in answers if answer.addresses]
        if not with_any and failure is not None:
            raise failure
        chosen = with_any[:1] if family is Family.AUTO else with_any
        ttls = [answer.ttl_seconds for answer in chosen if answer.ttl_seconds is not None]
        found = tuple(address for answer in chosen for address in answer.addresses)
        return Addresses(found, min(ttls, default=None))

    async def services(self, name: str) -> Services:
        """Return the SRV records of a name, those with the best priority only. Raises DnsError."""
        records, ttl = await self._ask(name, "SRV")
        services = [
            Service(data.target.rstrip(".").lower(), data.port, data.priority, data.weight)
            for data in records
            if data.target.rstrip(".") and data.port
        ]
        best = min((service.priority for service in services), default=0)
        chosen = {service for service in services if service.priority == best}
        return Services(tuple(sorted(chosen, key=lambda one: (one.target, one.port, one.weight))), ttl)

    async def _of(self, name: str, kind: str) -> Addresses:
        records, ttl = await self._ask(name, kind)
        return Addresses(tuple(sorted({data.addr for data in records})), ttl)

    async def _ask(self, name: str, kind: str) -> tuple[list[Any], float | None]:
        """Return the data of the records of this kind, and the shortest TTL on the way to them."""
        from aiodns.error import ARES_ENODATA, ARES_ENOTFOUND, DNSError
        from pycares import QUERY_TYPE_A, QUERY_TYPE_AAAA, QUERY_TYPE_SRV

        wanted = {"A": QUERY_TYPE_A, "AAAA": QUERY_TYPE_AAAA, "SRV": QUERY_TYPE_SRV}[kind]
        try:
            result = await self._resolver.query_dns(name, kind)
        except DNSError as error:
            number, reason = (*error.args, "failed")[:2]
            if number in (ARES_ENODATA, ARES_ENOTFOUND):
                return [], None
            raise DnsError(f"{kind}: {reason}") from None
        except (UnicodeError, ValueError) as error:
            raise DnsError(f"{kind}: this is no name that can be asked for ({error})") from None
        # An alias (CNAME) that changes changes the addresses: its TTL counts, too.
        ttls = [float(record.ttl) for record in result.answer]
        return [record.data for record in result.answer if record.type == wanted], min(ttls, default=None)
