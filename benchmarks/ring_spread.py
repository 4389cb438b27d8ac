"""How evenly the ring shares the keys, and what it costs: the table behind the default of `virtual_nodes`.

    python benchmarks/ring_spread.py > benchmarks/results/ring_spread.md

Shares are exact (arc lengths, not samples), over many random sets of `host:port` names. "In band" is the
fraction of name sets in which each of seven backends owns 13.3–15.4% of the keys. Deterministic but for the
times; about five minutes.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from dataclasses import dataclass

from prefix_router.routing.fleet import BackendName
from prefix_router.routing.ring import DEFAULT_VIRTUAL_NODES, Ring

BACKEND_COUNTS = (2, 3, 7, 16, 64, 256)
VIRTUAL_NODES = (40, 80, 160, 320, 640, 1280, 2560, 4096)
BAND = (0.133, 0.154)
BAND_BACKENDS = 7

HEADER = """\
# Share spread and cost of the ring

    python benchmarks/ring_spread.py --name-sets {name_sets} --seed {seed}

Shares are relative to the fair share (1.00). Smallest: the least share of any backend, 5th percentile of name
sets; largest: 95th percentile. Stddev: of all shares. In band: name sets in which all of seven backends
own 13.3–15.4%. Build: a whole ring; change: one backend joins (`with_weights`); both CPU time, best of five.

| backends | virtual nodes | name sets | smallest | largest | stddev | in band | build ms | change ms | KiB |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True, slots=True)
class Spread:
    """Share of the fair share, over name sets: the smallest, the largest, and the standard deviation."""

    smallest: float
    largest: float
    stddev: float
    in_band: float


def names(source: random.Random, count: int) -> list[BackendName]:
    hosts = source.sample(range(1 << 24), count)
    return [
        BackendName(f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}:{source.choice((8000, 8080, 30000))}")
        for host in hosts
    ]


def measure_spread(source: random.Random, backends: int, virtual_nodes: int, name_sets: int) -> Spread:
    smallest, largest, ratios, in_band = [], [], [], 0
    for _ in range(name_sets):
        shares = Ring(dict.fromkeys(names(source, backends), 1), virtual_nodes).shares.values()
        relative = [share * backends for share in shares]
        smallest.append(min(relative))
        largest.append(max(relative))
        ratios += relative
        in_band += BAND[0] <= min(shares) and max(shares) <= BAND[1]
    return Spread(
        percentile(smallest, 0.05),
        percentile(largest, 0.95),
        statistics.pstdev(ratios),
        in_band / name_sets,
    )


def percentile(values: list[float], fraction: float) -> float:
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))]


def measure_cost(source: random.Random, backends: int, virtual_nodes: int) -> tuple[float, float, float]:
    """Best of five builds in ms, best of five one-backend changes in ms, memory held in KiB."""
    weights = dict.fromkeys(names(source, backends), 1)
    changed = {**weights, BackendName("joining:8000"): 1}
    builds, changes = [], []
    for _ in range(5):
        start = time.process_time()
        ring = Ring(weights, virtual_nodes)
        builds.append(time.process_time() - start)
        start = time.process_time()
        ring.with_weights(changed)
        changes.append(time.process_time() - start)
    del ring
    gc.collect()
    tracemalloc.start()
    ring = Ring(weights, virtual_nodes)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert ring.point_count == backends * virtual_nodes
    return min(builds) * 1e3, min(changes) * 1e3, held_bytes / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--name-sets", type=int, default=400, help="name sets for small fleets")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    print(HEADER.format(name_sets=arguments.name_sets, seed=arguments.seed))
    for backends in BACKEND_COUNTS:
        for virtual_nodes in VIRTUAL_NODES:
            affordable = max(5, 1_500_000 // (backends * virtual_nodes))
            name_sets = (
                arguments.name_sets if backends == BAND_BACKENDS else min(arguments.name_sets, affordable)
            )
            spread = measure_spread(source, backends, virtual_nodes, name_sets)
            build_ms, change_ms, held_kib = measure_cost(source, backends, virtual_nodes)
            mark = "**" if virtual_nodes == DEFAULT_VIRTUAL_NODES else ""
            band = f"{spread.in_band:.0%}" if backends == BAND_BACKENDS else ""
            print(
                f"| {backends} | {mark}{virtual_nodes}{mark} | {name_sets} | {spread.smallest:.3f} | "
                f"{spread.largest:.3f} | {spread.stddev:.3f} | {band} | {build_ms:.1f} | {change_ms:.1f} | "
                f"{held_kib:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
