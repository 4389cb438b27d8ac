"""How fast the fleet simulation is, on one core.

    python benchmarks/fleetsim_speed.py > benchmarks/results/fleetsim_speed.md

CPU time of whole runs, best of `--repeats`, each in this process. About a minute.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.simulation import simulate
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload

if TYPE_CHECKING:
    from prefix_router.fleetsim.request import SimulatedRequest

CASES = (("sagemaker", 30.0), ("unique", 60.0), ("chat", 30.0))
"""Workloads, and their requests per second for seven replicas."""

STRATEGIES = ("plain_ring", "prefix_aware", "radix_tree")

HEADER = """\
# Speed of the fleet simulation

    python benchmarks/fleetsim_speed.py --requests {requests} --repeats {repeats}

Seven replicas, one core. Blocks: of all prompts. Tokens: generated ones.

| workload | strategy | requests | blocks | tokens | simulated s | CPU s | times real time |
|---|---|---:|---:|---:|---:|---:|---:|"""


def at_rate(requests: list[SimulatedRequest], requests_per_second: float) -> list[SimulatedRequest]:
    """The requests at this mean rate."""
    stretch = len(requests) / requests_per_second / requests[-1].arrival_seconds
    return [request._replace(arrival_seconds=request.arrival_seconds * stretch) for request in requests]


def measure(requests: list[SimulatedRequest], strategy: str, repeats: int) -> tuple[float, float]:
    """Simulated seconds, and the least CPU seconds that they took."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        result = simulate(requests, FleetPlan(strategy))
        spent.append(time.process_time() - start)
    return max(outcome.end_seconds for outcome in result.outcomes), min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=4000, help="of each workload (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each case (default: %(default)s)")
    arguments = parser.parse_args()
    print(HEADER.format(requests=arguments.requests, repeats=arguments.repeats))
    for workload, rate in CASES:
        requests = at_rate(generate(parse_workload(workload), arguments.requests, 0), rate)
        blocks = sum(len(request.blocks) for request in requests)
        tokens = sum(request.output_tokens for request in requests)
        for strategy in STRATEGIES:
            simulated, spent = measure(requests, strategy, arguments.repeats)
            print(
                f"| {workload} | {strategy} | {len(requests):,} | {blocks:,} | {tokens:,} "
                f"| {simulated:.0f} | {spent:.1f} | {simulated / spent:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
