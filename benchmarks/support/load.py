"""Steady mixed load, and the account of what became of it.

Open loop: a request begins when its time has come, whether or not earlier ones have ended, because users do
not wait for each other. Every other request is a stream; every request has a prefix of its own, so that all
backends are homes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from benchmarks.support.raw_client import Answer, Ask, Seen, ask_once

STREAM_EVENTS = 10
STREAM_INTERVAL_MS = 20
PATIENCE_SECONDS = 30.0

_numbers = count()


def next_ask() -> Ask:
    """Return the next request of the mix: alternately a stream and a whole answer."""
    number = next(_numbers)
    text = f"prefix {number} " * 20
    if number % 2:
        return Ask(f"n{number}", text, f"stream:{STREAM_EVENTS}:{STREAM_INTERVAL_MS}", STREAM_EVENTS)
    return Ask(f"n{number}", text)


@dataclass
class Load:
    """Requests at a steady rate against one port, until stopped."""

    port: int
    rate_per_second: float
    answers: list[Answer] = field(default_factory=list)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _source: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._source = asyncio.create_task(self._send(), name="load")

    async def stop(self) -> list[Answer]:
        """Send no more, wait for what runs, and return all answers since the start."""
        if self._source is not None:
            self._source.cancel()
        while self._running:
            await asyncio.wait(self._running)
        return self.answers

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            task = asyncio.create_task(self._ask())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            due += 1 / self.rate_per_second
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _ask(self) -> None:
        self.answers.append(await ask_once(self.port, next_ask(), PATIENCE_SECONDS))


@dataclass(frozen=True, slots=True)
class Account:
    """How the requests of one scenario ended. lost: those that were not allowed to end so."""

    sent: int
    by_kind: dict[str, int]
    allowed: dict[str, int]
    lost: int

    @classmethod
    def of(
        cls, answers: list[Answer], allowed_kinds: frozenset[str] = frozenset(), victim: str = ""
    ) -> Account:
        """Sum up.

        allowed_kinds: what may happen besides a good answer. A broken answer is allowed only where `victim`
        gave it.
        """
        allowed: Counter[str] = Counter()
        for answer in answers:
            if answer.kind in allowed_kinds and (answer.seen is not Seen.BROKEN or answer.backend == victim):
                allowed[answer.kind] += 1
        kinds = Counter(answer.kind for answer in answers)
        lost = len(answers) - kinds["good"] - allowed.total()
        return cls(len(answers), dict(sorted(kinds.items())), dict(sorted(allowed.items())), lost)
