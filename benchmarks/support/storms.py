"""What clients can do to the router, each beside steady honest load that must not lose a request.

The honest load is counted as everywhere; what the storm's own connections got is in the facts.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.support.attacks import ENDLESS, SKIPPED, SMUGGLING, header_bombs, hostile_json
from benchmarks.support.load import Account, next_ask
from benchmarks.support.raw_client import Answer, Head, ask_once
from benchmarks.support.scenario import Arena, Report

_PATIENCE_SECONDS = 90.0
_SHORT_SECONDS = 2.0
_AT_ONCE = 20
HEAD_SECONDS = 10
"""What the router is told to give a client for its head. Longer than it needs to get through the largest
storm: a connection whose turn has not come by then is closed as well."""
_STALL_BYTES = 1_000_000
FLAT_MB = 10.0
"""What honest load and noise may add to the resident memory during a storm."""
FLAT_MB_PER_READER = 3.0
"""What a stalled reader may cost: the buffers of two sockets and what the relay holds, never the response."""

_STATS_REQUEST = b"GET /-/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_JSON_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
)
_HALF_A_HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "


class Result:
    """What a storm has to say: facts, checks, and answers to honest requests of its own."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.checks: dict[str, bool] = {}
        self.answers: list[Answer] = []


Storm = Callable[[Arena, Result], Awaitable[None]]


async def many_connections(arena: Arena, result: Result) -> None:
    """All at once, one request each."""
    asks = (
        ask_once(arena.router.port, next_ask(), _PATIENCE_SECONDS) for _ in range(arena.scale.connections)
    )
    began = time.monotonic()
    result.answers = list(await asyncio.gather(*asks))
    result.facts["connections"] = arena.scale.connections
    result.facts["seconds_for_all"] = round(time.monotonic() - began, 1)


async def slow_readers(arena: Arena, result: Result) -> None:
    """Clients that ask for a huge response, take a little and stall; then one of them takes it all."""
    size = arena.scale.bulk_bytes
    asked = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Play: bulk:%d\r\nContent-Length: 2\r\n\r\n{}" % size
    )
    before_mb = arena.router.resident_mb()
    highest_mb = before_mb
    readers = []
    for _ in range(arena.scale.slow_readers):
        reader, writer = await asyncio.open_connection("127.0.0.1", arena.router.port, limit=65536)
        writer.write(asked)
        readers.append((reader, writer))
    for reader, _ in readers:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_STALL_BYTES)
    stalled_until = time.monotonic() + arena.scale.hold_seconds
    while time.monotonic() < stalled_until:
        highest_mb = max(highest_mb, arena.router.resident_mb())
        await asyncio.sleep(0.1)
    reader, writer = readers[0]
    left = size - _STALL_BYTES
    while left and (piece := await reader.read(min(left, 65536))):
        left -= len(piece)
        if left % 100 == 0:
            highest_mb = max(highest_mb, arena.router.resident_mb())
    highest_mb = max(highest_mb, arena.router.resident_mb())
    for _, writer in readers:
        writer.transport.abort()
    grown = highest_mb - before_mb
    result.facts |= {"readers": len(readers), "response_bytes": size, "resident_growth_mb": round(grown, 1)}
    result.checks["memory stays flat"] = grown < FLAT_MB + FLAT_MB_PER_READER * len(readers)
    result.checks["the reader that went on got every byte"] = left == 0


async def slow_writers(arena: Arena, result: Result) -> None:
    """Slowloris: half of the connections never finish their head, the other half never their body."""
    half = arena.scale.slow_writers // 2
    heads = [await asyncio.open_connection("127.0.0.1", arena.router.port) for _ in range(half)]
    bodies = [await asyncio.open_connection("127.0.0.1", arena.router.port) for _ in range(half)]
    for _, writer in heads:
        writer.write(_HALF_A_HEAD)
    for _, writer in bodies:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    ends = await asyncio.gather(*(_end_of(reader, arena) for reader, _ in bodies))
    still_open = half
    until = time.monotonic() + 2 * HEAD_SECONDS
    while still_open and time.monotonic() < until:
        for _, writer in heads:
            if not writer.is_closing():
                writer.write(b"a")
        await asyncio.sleep(0.25)
        still_open = sum(not reader.at_eof() and reader.exception() is None for reader, _ in heads)
    for _, writer in [*heads, *bodies]:
        writer.transport.abort()
    result.facts |= {"heads_never_finished": half, "of_them_still_open": still_open}
    result.facts["bodies_never_finished"] = dict(Counter(ends))
    result.checks["heads that never end are cut"] = still_open == 0
    result.checks["slow bodies are answered 408"] = set(ends) == {"408"}


async def _end_of(reader: asyncio.StreamReader, arena: Arena) -> str:
    """Return the status that a connection ends with."""
    try:
        async with asyncio.timeout(arena.scale.hold_seconds + 15):
            return str(Head.of(await reader.readuntil(b"\r\n\r\n")).status)
    except (OSError, asyncio.IncompleteReadError):
        return "closed"
    except TimeoutError:
        return "open"


async def _statuses(port: int, data: bytes, seconds: float) -> list[str]:
    """Send bytes, read what comes for `seconds`, return the statuses in it, and whether it was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    ended = "open"
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            while piece := await reader.read(65536):
                received += piece
            ended = "closed"
    except TimeoutError:
        pass
    except OSError:
        ended = "reset"
    finally:
        writer.transport.abort()
    lines = [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    return [*(line[9:12].decode() for line in lines), ended]


async def header_storm(arena: Arena, result: Result) -> None:
    """Heads that are too large in every way."""
    before_mb = arena.router.resident_mb()
    for name, data in header_bombs().items():
        result.facts[name] = " ".join(await _statuses(arena.router.port, data, _SHORT_SECONDS))
    result.checks["every bomb is refused"] = all(
        end.startswith(("4", "closed", "reset")) for name, end in result.facts.items() if name != SKIPPED
    )
    bomb = header_bombs()[ENDLESS]
    for _ in range(0, arena.scale.header_bombs, _AT_ONCE):
        await asyncio.gather(*(_statuses(arena.router.port, bomb, _SHORT_SECONDS) for _ in range(_AT_ONCE)))
    grown = arena.router.resident_mb() - before_mb
    result.facts[f"{arena.scale.header_bombs} times {ENDLESS}"] = f"{grown:.0f} MB more resident"
    result.checks["memory stays flat"] = grown < FLAT_MB


async def smuggling(arena: Arena, result: Result) -> None:
    """Requests hidden in requests; afterwards the backends say what they have seen."""
    for name, data in SMUGGLING.items():
        result.facts[name] = " ".join(await _statuses(arena.router.port, data, _SHORT_SECONDS / 4))
    seen = 0
    for backend in arena.backends:
        reader, writer = await asyncio.open_connection("127.0.0.1", backend.port)
        writer.write(_STATS_REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        seen += json.loads(await reader.readuntil(b"}"))["smuggled"]
        writer.transport.abort()
    result.facts = {"attempts": len(SMUGGLING), "seen_by_backends": seen, "answers": result.facts}
    result.checks["no backend saw a hidden request or header"] = seen == 0


async def json_storm(arena: Arena, result: Result) -> None:
    """Deep and huge bodies, one after the other; they are the backend's to judge, not a reason to die."""
    paused = 0.0

    async def watch() -> None:
        nonlocal paused
        while True:
            began = time.monotonic()
            await arena.router.ask_admin("/livez")
            paused = max(paused, time.monotonic() - began)
            await asyncio.sleep(0.01)

    watching = asyncio.ensure_future(watch())
    for name, body in hostile_json(arena.scale.huge_json_bytes):
        ends = await _statuses(arena.router.port, _JSON_HEAD % len(body) + body, _PATIENCE_SECONDS)
        result.facts[name] = " ".join(ends)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    result.checks["every body reached a backend"] = all(
        end.startswith("200") for end in result.facts.values()
    )
    result.facts = {
        "bytes_each": arena.scale.huge_json_bytes,
        "longest_wait_for_livez_ms": round(paused * 1000),
        "answers": result.facts,
    }


STORMS: tuple[tuple[str, Storm], ...] = (
    ("slow readers", slow_readers),  # first: memory that is used already would hide what they cost
    ("connections at once", many_connections),
    ("slow writers", slow_writers),
    ("header bombs", header_storm),
    ("request smuggling", smuggling),
    ("deep and huge JSON", json_storm),
)


async def raise_storm(name: str, storm: Storm, arena: Arena) -> Report:
    """Let one storm happen beside honest load and report."""
    before = await arena.router.footprint()
    load = arena.load()
    result = Result()
    await storm(arena, result)
    answers = [*await load.stop(), *result.answers]
    after, unfinished = await arena.calm()
    report = Report(
        name,
        (storm.__doc__ or "").strip(),
        Account.of(answers),
        before,
        after,
        unfinished,
        facts=result.facts,
    )
    report.checks |= result.checks
    report.checks["the router lives"] = arena.router.alive
    return report
