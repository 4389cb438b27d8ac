"""What it costs that workers tell each other what they send where, in microseconds.

    python -m benchmarks.journal

A request is three notes. For prompts of several lengths: writing them, and taking them over as `adaptive`
does. For several numbers of workers: finding out that nobody has written anything. The best of some rounds,
since others use the machine too.
"""

from __future__ import annotations

import sys
from itertools import count
from time import perf_counter
from timeit import repeat

from benchmarks.support.machine import description
from benchmarks.support.report import table
from prefix_router.routing.chain import LEVEL_TOKENS, PrefixChain
from prefix_router.routing.decision import Query
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring
from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.shared import Ended, FirstToken, Note, Sent, identity
from prefix_router.workers.journal import Journal, JournalPeers

PROMPT_TOKENS = (1_000, 8_000, 32_000, 128_000)
WORKERS = (2, 4, 8, 64)
BACKEND = Backend(BackendName("a"), "http://a")
_REQUESTS = 200
_IDLE_READS = 50_000
_ROUNDS = 7
_GOLDEN = 0x9E3779B97F4A7C15


def follower(journal: Journal, worker: int) -> Adaptive:
    """The strategy of a worker, which has seen its fleet."""
    strategy = Adaptive()
    strategy.peers = JournalPeers(journal, worker)
    member = Member(BACKEND, BackendState.HEALTHY, InFlight())
    strategy.choose(
        Query(None, None, 0, chain=PrefixChain((), 1, ())), Fleet((member,), Ring({BACKEND.name: 1}, 16))
    )
    return strategy


def requests(numbers: count[int], tokens: int) -> list[Note]:
    """The notes of some requests whose prompts have nothing in common."""
    notes: list[Note] = []
    backend = identity(BACKEND)
    levels = sum(level <= tokens for level in LEVEL_TOKENS)
    for _ in range(_REQUESTS):
        names = [next(numbers) * _GOLDEN % 2**64 for _ in range(levels + 1)]
        visit = next(numbers)
        notes += (
            Sent(visit, float(visit), backend, tokens, True, names),
            FirstToken(visit, visit + 0.1),
            Ended(visit, visit + 0.5, backend, tokens, 0, 0, 100),
        )
    return notes


def request_costs(tokens: int) -> tuple[float, float, int]:
    """Microseconds to write the notes of a request and to take them over, and their bytes."""
    journal = Journal.create(workers=2)
    strategy = follower(journal, 2)
    numbers = count(1)
    written, taken, size = [], [], 0
    for _ in range(_ROUNDS):
        notes = requests(numbers, tokens)
        before, began = journal.heads[0], perf_counter()
        for note in notes:
            journal.append(1, note)
        middle = perf_counter()
        while strategy.follow():
            pass
        written.append(middle - began)
        taken.append(perf_counter() - middle)
        size = (journal.heads[0] - before) // _REQUESTS
    journal.close()
    return min(written) / _REQUESTS * 1e6, min(taken) / _REQUESTS * 1e6, size


def idle_cost(workers: int) -> float:
    """Microseconds to find out that there is nothing new."""
    journal = Journal.create(workers)
    strategy = follower(journal, 1)
    strategy.follow()
    seconds = min(repeat(strategy.follow, number=_IDLE_READS, repeat=_ROUNDS))
    journal.close()
    return seconds / _IDLE_READS * 1e6


def main() -> int:
    """Measure, and print the report."""
    rows = [(f"{tokens:,}", *request_costs(tokens)) for tokens in PROMPT_TOKENS]
    written = [(tokens, f"{write:.1f}", f"{take:.1f}", size) for tokens, write, take, size in rows]
    print(f"# Journal of the workers\n\n`python -m benchmarks.journal` on {description()}.\n")
    print(table(("prompt (tokens)", "write (µs)", "take over (µs)", "bytes"), written), "\n")
    print(table(("workers", "nothing new (µs)"), [(n, f"{idle_cost(n):.2f}") for n in WORKERS]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
