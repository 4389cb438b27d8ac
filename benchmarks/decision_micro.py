"""Nanoseconds for one routing decision of `prefix_aware`, and for the ring lookups in it.

    python benchmarks/decision_micro.py

Paths: fast (home healthy, below its threshold), overflow (home full, another clearly less loaded), saturated
(everybody full), failover (home down), keyless. The best of several rounds, because a busy machine can only
make a round slower. Nothing is written to a file.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import TYPE_CHECKING

from prefix_router.routing.decision import Query
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring
from prefix_router.routing.strategies.prefix_aware import PrefixAware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

THRESHOLD = 64
BACKEND_COUNTS = (7, 64, 256)
ROUNDS = 100
KEYS = 500
KEYS_OF_SLOW_PATHS = 20
"""Short rounds for what is O(backends), so that some of them are undisturbed."""


def fleet_over(ring: Ring, in_flight: dict[BackendName, int], down: BackendName | None = None) -> Fleet:
    """Backends with these many requests in flight (0 where not said), one of them down or none."""
    members = []
    for name in ring.weights:
        counter = InFlight()
        counter.count = in_flight.get(name, 0)
        state = BackendState.DOWN if name == down else BackendState.HEALTHY
        members.append(Member(Backend(name, f"http://{name}"), state, counter))
    return Fleet(tuple(members), ring)


def nanoseconds_each(call: Callable[[int], object], arguments: Iterable[int]) -> float:
    arguments = list(arguments)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for argument in arguments:
            call(argument)
        best = min(best, time.perf_counter_ns() - start)
    return best / len(arguments)


def measure(backends: int) -> dict[str, float]:
    source = random.Random(backends)
    ring = Ring({BackendName(f"10.0.{index // 250}.{index % 250}:8000"): 1 for index in range(backends)})
    keys = [source.getrandbits(64) for _ in range(KEYS)]
    home = next(iter(ring.weights))
    keys_at_home = [
        key for key in (source.getrandbits(64) for _ in range(200 * backends)) if ring.owner(key) == home
    ]
    queries = {key: Query(key, None, key) for key in (*keys, *keys_at_home)}
    keyless = Query(None, None, 12345)
    choose = PrefixAware(THRESHOLD).choose
    idle = fleet_over(ring, {})
    full = fleet_over(ring, dict.fromkeys(ring.weights, THRESHOLD))
    home_full = fleet_over(ring, {home: THRESHOLD})
    home_down = fleet_over(ring, {}, down=home)
    overhead = nanoseconds_each(lambda key: queries[key], keys)
    return {
        "ring.owner": nanoseconds_each(ring.owner, keys),
        "first two successors": nanoseconds_each(lambda key: two_of(ring, key), keys),
        "fast": nanoseconds_each(lambda key: choose(queries[key], idle), keys) - overhead,
        "overflow": nanoseconds_each(
            lambda key: choose(queries[key], home_full), keys_at_home[:KEYS_OF_SLOW_PATHS]
        )
        - overhead,
        "saturated": nanoseconds_each(lambda key: choose(queries[key], full), keys[:KEYS_OF_SLOW_PATHS])
        - overhead,
        "failover": nanoseconds_each(lambda key: choose(queries[key], home_down), keys_at_home) - overhead,
        "keyless": nanoseconds_each(lambda _: choose(keyless, idle), keys[:KEYS_OF_SLOW_PATHS]),
    }


def two_of(ring: Ring, key: int) -> tuple[BackendName, BackendName]:
    walk = ring.successors(key)
    return next(walk), next(walk)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    table = {backends: measure(backends) for backends in BACKEND_COUNTS}
    print("| ns each | " + " | ".join(f"{backends} backends" for backends in table) + " |")
    print("|---|" + "---:|" * len(table))
    for path in table[BACKEND_COUNTS[0]]:
        print(f"| {path} | " + " | ".join(f"{timings[path]:.0f}" for timings in table.values()) + " |")


if __name__ == "__main__":
    main()
