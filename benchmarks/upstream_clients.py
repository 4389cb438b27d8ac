"""What a request to a backend costs: this project's upstream client against aiohttp's.

    python benchmarks/upstream_clients.py [--rounds 5] [--requests 3000] [--concurrency 32]

Both send the same bytes to the same near-free backend and read the whole answer; aiohttp's has everything
switched off that a proxy must not do (cookies, decompression, redirects, default headers). Figures are
microseconds of this process's own processor time per request, the two in turn, with the median of the ratios
of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import uvloop

from benchmarks.support.machine import free_port
from prefix_router.upstream.pool import Pool, Timeouts

BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 180 + b'"}]}'
PATH = "/v1/chat/completions"


def ours(port: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """Return how to send one request by the upstream client, and how to close it."""
    pool = Pool("127.0.0.1", port, Timeouts())
    head = (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    head %= (PATH.encode(), len(BODY))

    async def send() -> None:
        response = await pool.send(b"POST", head, BODY)
        while await response.read():
            pass

    async def close() -> None:
        pool.close()

    return send, close


def theirs(port: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """Return the same for aiohttp's client."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300),
    )
    url = f"http://127.0.0.1:{port}{PATH}"
    headers = {"Content-Type": "application/json"}

    async def send() -> None:
        async with session.post(url, data=BODY, headers=headers, allow_redirects=False) as response:
            await response.read()

    return send, session.close


async def cost(send: Callable[[], Awaitable[None]], requests: int, concurrency: int) -> float:
    """Return microseconds of processor time per request."""

    async def some() -> None:
        for _ in range(requests // concurrency):
            await send()

    began = time.process_time()
    await asyncio.gather(*(some() for _ in range(concurrency)))
    return (time.process_time() - began) / requests * 1e6


async def compare(port: int, rounds: int, requests: int, concurrency: int) -> None:
    """Measure in turn and print."""
    clients = {"upstream": ours(port), "aiohttp": theirs(port)}
    figures: dict[str, list[float]] = {name: [] for name in clients}
    for send, _ in clients.values():  # to warm up
        await cost(send, requests, concurrency)
    for _ in range(rounds):
        for name, (send, _) in clients.items():
            figures[name].append(await cost(send, requests, concurrency))
    for name, (_, close) in clients.items():
        await close()
        print(f"{name:9} {statistics.median(figures[name]):6.1f} µs per request")
    ratios = [them / us for us, them in zip(figures["upstream"], figures["aiohttp"], strict=True)]
    print(f"ratio     {statistics.median(ratios):6.2f}")


def main() -> None:
    """Start a backend, compare, stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, default=32)
    options = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.dataplane.backend", str(port)]
    backend = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert backend.stdout is not None
        backend.stdout.readline()  # it says when it listens
        uvloop.run(compare(port, options.rounds, options.requests, options.concurrency))
    finally:
        backend.terminate()
        backend.wait()


if __name__ == "__main__":
    main()
