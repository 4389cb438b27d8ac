"""Backends from DNS: the addresses of a name, or the targets of its SRV records.

The name is asked again when its answer is no longer good (TTL), but not more often than `min_seconds` and not
less often than `max_seconds`; after a failure sooner or later than that, with jitter, so that many routers do
not ask in step. A failure keeps the last set. "There are none" is an answer; `follow` says what it is worth.

An SRV target is one backend with the target's name, wherever that name points to: a replica that comes back
under another address keeps its keys. Targets are resolved here, by the same name servers. One that cannot be
resolved now keeps the address it had; one that never could be is left out and told of.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from prefix_router.discovery.dns_questions import Addresses, DnsError, Questions, Service
from prefix_router.discovery.source import Family, Found, FoundSet, Trouble, authority_of, url_of
from prefix_router.routing.fleet import BackendName

MAX_WEIGHT = 100
_JITTER = 0.1
_MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class DnsOptions:
    """name: complete, with or without a final dot. port: of each address; None asks for SRV records.

    path: prefix of each URL, "" or with a slash in front. weights: whether the weights of SRV records are
    shares of the ring.
    """

    name: str
    port: int | None
    scheme: str = "http"
    path: str = ""
    family: Family = Family.AUTO
    weights: bool = False
    resolvers: tuple[str, ...] = ()
    min_seconds: float = 5
    max_seconds: float = 60

    def source(self) -> DnsSource:
        """Make the source."""
        return DnsSource(self)


class DnsSource:
    """Says what DNS says. A `Source`."""

    def __init__(self, options: DnsOptions) -> None:
        self._options = options
        self._random = random.Random()
        self._known: dict[str, Addresses] = {}
        """Of each target of the last answer."""

    async def reports(self) -> AsyncGenerator[FoundSet | Trouble, None]:
        """Ask for ever."""
        questions = Questions(self._options.resolvers)
        failures = 0
        try:
            while True:
                try:
                    report, ttl = await self._ask(questions)
                except DnsError as error:
                    failures += 1
                    yield Trouble(f"{self._options.name}: {error}")
                    await asyncio.sleep(self._until_retry(failures))
                    continue
                failures = 0
                yield report
                await asyncio.sleep(self._until_next(ttl))
        finally:
            await questions.close()

    async def _ask(self, questions: Questions) -> tuple[FoundSet | Trouble, float | None]:
        """Return what is to be reported, and how long it holds. Raises DnsError."""
        options = self._options
        if options.port is None:
            return await self._ask_services(questions)
        answer = await questions.addresses(options.name, options.family)
        found = tuple(
            Found(
                BackendName(authority_of(address, options.port)),
                url_of(options.scheme, address, options.port, options.path),
            )
            for address in answer.addresses
        )
        return found, answer.ttl_seconds

    async def _ask_services(self, questions: Questions) -> tuple[FoundSet | Trouble, float | None]:
        answer = await questions.services(self._options.name)
        targets = sorted({service.target for service in answer.services})
        limit = asyncio.Semaphore(_MOST_AT_ONCE)

        async def resolve(target: str) -> Addresses | DnsError:
            async with limit:
                try:
                    return await questions.addresses(target, self._options.family)
                except DnsError as error:
                    return error

        resolved = dict(zip(targets, await asyncio.gather(*map(resolve, targets)), strict=True))
        wrong: list[str] = []
        known: dict[str, Addresses] = {}
        for target, addresses in resolved.items():
            if isinstance(addresses, Addresses) and addresses.addresses:
                known[target] = addresses
                continue
            wrong.append(f"{target}: {addresses if isinstance(addresses, DnsError) else 'has no address'}")
            if isinstance(addresses, DnsError) and target in self._known:
                known[target] = self._known[target]
        self._known = known
        if targets and not known:
            raise DnsError(f"no target has an address: {'; '.join(wrong)}")
        ttls = [
            ttl
            for ttl in (answer.ttl_seconds, *(one.ttl_seconds for one in known.values()))
            if ttl is not None
        ]
        found = self._targets(answer.services, known)
        ttl = min(ttls, default=None)
        return (Trouble(f"{self._options.name}: {'; '.join(wrong)}", found) if wrong else found), ttl

    def _targets(self, services: tuple[Service, ...], known: dict[str, Addresses]) -> FoundSet:
        options = self._options
        found: dict[str, Found] = {}
        for service in services:
            if service.target not in known:
                continue
            name = authority_of(service.target, service.port)
            found[name] = Found(
                BackendName(name),
                url_of(options.scheme, known[service.target].addresses[0], service.port, options.path),
                weight=min(max(service.weight, 1), MAX_WEIGHT) if options.weights else None,
                # The certificate is for the name, and the URL holds an address.
                server_name=service.target if options.scheme == "https" else None,
            )
        return tuple(found.values())

    def _until_next(self, ttl_seconds: float | None) -> float:
        seconds = self._options.min_seconds if ttl_seconds is None else ttl_seconds
        seconds = min(max(seconds, self._options.min_seconds), self._options.max_seconds)
        # Later, not sooner: sooner, the name server's own cache would give what is known already.
        return seconds * self._random.uniform(1, 1 + _JITTER)

    def _until_retry(self, failures: int) -> float:
        seconds = min(self._options.min_seconds * 2.0 ** min(failures - 1, 10), self._options.max_seconds)
        return seconds * self._random.uniform(1 - _JITTER, 1)
