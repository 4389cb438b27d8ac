"""The client of the soak, a program of its own: plays the mixture and prints what it has counted, as JSON.

    python -m benchmarks.support.soak_client --port 8000 --requests 1000

Closed loop: each of a fixed number of users sends its next request when its last one has ended. Connections
are kept where the kind of request leaves them usable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import uvloop

from benchmarks.support.machine import step_aside
from benchmarks.support.raw_client import Ask
from benchmarks.support.traffic_mix import KINDS, Kind, Streams, UnexpectedError

USERS = 48
PREFIXES = 500
PATIENCE_SECONDS = 30.0


def schedule(requests: int, seed: int) -> Iterator[Kind]:
    """Yield the kinds in random order, in exact proportion in each hundred."""
    shuffled = random.Random(seed)
    block: list[Kind] = []
    for _ in range(requests):
        if not block:
            block = [kind for kind in KINDS for _ in range(kind.share)]
            shuffled.shuffle(block)
        yield block.pop()


class Client:
    """Counts by kind what was seen as it should be, and everything else by what it was."""

    def __init__(self, port: int, requests: int, seed: int) -> None:
        self._port = port
        self._schedule = enumerate(schedule(requests, seed))
        self.seen: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()

    async def run(self) -> dict[str, Any]:
        """Play everything and return the counts."""
        await asyncio.gather(*(self._user() for _ in range(USERS)))
        return {"seen": self.seen, "unexpected": self.unexpected}

    async def _user(self) -> None:
        streams: Streams | None = None
        for number, kind in self._schedule:
            ask = Ask(f"n{number}", f"prefix {number % PREFIXES} " * 20)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    streams = streams or await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
                    await kind.play(streams, ask)
            except UnexpectedError as error:
                self.unexpected[str(error)] += 1
                kept = False
            except (OSError, asyncio.IncompleteReadError) as error:
                self.unexpected[f"{kind.name}: {type(error).__name__}"] += 1
                kept = False
            else:
                self.seen[kind.name] += 1
                kept = kind.keeps
            if streams is not None and not kept:
                streams[1].transport.abort()
                streams = None
        if streams is not None:
            streams[1].transport.abort()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    step_aside()

    async def run() -> dict[str, Any]:
        return await Client(options.port, options.requests, options.seed).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run())))


if __name__ == "__main__":
    main()
