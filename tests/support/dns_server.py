"""A name server on loopback: real messages over UDP, from a zone that a test changes while it runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from dnslib import AAAA, CNAME, QTYPE, RCODE, RR, SRV, A, DNSRecord

Zone = dict[tuple[str, str], list[str]]
"""(name, kind) -> records: an address for A and AAAA, a name for CNAME, "priority weight port target"."""


class DnsServer(asyncio.DatagramProtocol):
    """zone: what it knows. asked: questions so far, by name and kind.

    fails: kinds that are answered with SERVFAIL. silent: whether nothing is answered at all. Names are
    without the final dot. A name with no record of any kind is NXDOMAIN, one with others has no data.
    """

    def __init__(self) -> None:
        self.zone: Zone = {}
        self.ttl = 0
        self.fails: set[str] = set()
        self.silent = False
        self.truncates = False
        self.asked: Counter[tuple[str, str]] = Counter()
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        answer = self.answer(data)
        if answer is not None and self._transport is not None:
            if self.truncates:
                short = DNSRecord.parse(answer)
                short.rr, short.header.tc = [], 1
                answer = short.pack()
            self._transport.sendto(answer, peer)

    def answer(self, data: bytes) -> bytes | None:
        request = DNSRecord.parse(data)
        name, kind = str(request.q.qname).rstrip(".").lower(), QTYPE[request.q.qtype]
        self.asked[name, kind] += 1
        if self.silent:
            return None
        reply = request.reply()
        if kind in self.fails:
            reply.header.rcode = RCODE.SERVFAIL
            return bytes(reply.pack())
        known = {asked for asked, _ in self.zone}
        if name not in known:
            reply.header.rcode = RCODE.NXDOMAIN
        while alias := self.zone.get((name, "CNAME")):
            reply.add_answer(RR(name, QTYPE.CNAME, rdata=CNAME(alias[0]), ttl=self.ttl))
            name = alias[0]
        for text in self.zone.get((name, kind), []):
            reply.add_answer(RR(name, getattr(QTYPE, kind), rdata=_data(kind, text), ttl=self.ttl))
        return bytes(reply.pack())


def _data(kind: str, text: str) -> A | AAAA | SRV:
    if kind == "SRV":
        priority, weight, port, target = text.split()
        return SRV(int(priority), int(weight), int(port), target)
    return A(text) if kind == "A" else AAAA(text)


@asynccontextmanager
async def dns_server(zone: Zone | None = None) -> AsyncIterator[DnsServer]:
    """Run a name server on a free loopback port, over UDP and TCP."""
    server = DnsServer()
    server.zone = zone or {}
    loop = asyncio.get_running_loop()

    writers: set[asyncio.StreamWriter] = set()

    async def over_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(2), "big")
                answer = server.answer(await reader.readexactly(length))
                if answer is not None:
                    writer.write(len(answer).to_bytes(2, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    tcp = await asyncio.start_server(over_tcp, "127.0.0.1", 0)
    while True:  # a port that is free for both
        port = tcp.sockets[0].getsockname()[1]
        try:
            transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", port))
            break
        except OSError:
            tcp.close()
            tcp = await asyncio.start_server(over_tcp, "127.0.0.1", 0)
    try:
        yield server
    finally:
        transport.close()
        tcp.close()
        for writer in list(writers):
            writer.transport.abort()
        await tcp.wait_closed()
        await asyncio.sleep(0)  # the transport closes its socket in the next turn
