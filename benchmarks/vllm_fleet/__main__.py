"""Real vLLM replicas on the CPU, a workload that shares prefixes, and the strategies in turn on cold engines.

    python -m benchmarks.vllm_fleet [--strategies random prefix_aware] [--replicas 2] [--concurrency 4] ...

Replicas are started anew for each strategy: only in development mode vLLM empties its cache on request,
and what users run is not that. Results replace `vllm_fleet.md` and `vllm_fleet.json` in the output directory.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.support.machine import description
from benchmarks.support.report import write
from benchmarks.support.vllm.fleet import build_tiny_model, engine_versions, running_replicas, vllm_python
from benchmarks.support.vllm.measurement import Measurement, ask, measure
from benchmarks.support.vllm.paths import KEPT_RESULTS, LOGS
from benchmarks.support.vllm.replica import Replica, ReplicaOptions, threads_per_replica
from benchmarks.support.vllm.router import Router, running_router
from benchmarks.support.vllm.workload import SharedPrefixWorkload, some_text
from benchmarks.vllm_fleet.summary import markdown, summarize
from prefix_router import __version__
from prefix_router.routing.strategies import STRATEGY_NAMES
from prefix_router.settings.model import RoutingSettings

DEFAULT_STRATEGIES = tuple(
    name
    for name in ("random", "least_outstanding_requests", "prefix_aware", "adaptive")
    if name in STRATEGY_NAMES
)
DEFAULT_CONCURRENCY_THRESHOLD = RoutingSettings().concurrency_threshold
_WARM_UP_REQUESTS = 4
"""Per replica, through the router: a process is slow at whatever it does for the first time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each strategy; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.vllm_fleet", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--strategies", nargs="+", choices=STRATEGY_NAMES, default=DEFAULT_STRATEGIES, metavar="NAME"
    )
    parser.add_argument("--replicas", type=int, default=2, help="3 GB of memory each; default 2")
    parser.add_argument("--prefixes", type=int, default=40, help="default 40")
    parser.add_argument("--rounds", type=int, default=3, help="how often each prefix is asked; default 3")
    parser.add_argument("--words", type=int, default=920, help="in a prefix; default 920: 2,000 tokens")
    parser.add_argument("--concurrency", type=int, default=4, help="requests at a time; default 4")
    parser.add_argument(
        "--concurrency-threshold",
        type=int,
        default=DEFAULT_CONCURRENCY_THRESHOLD,
        help=f"requests in flight at which a home overflows; default {DEFAULT_CONCURRENCY_THRESHOLD}",
    )
    parser.add_argument("--output", type=Path, default=KEPT_RESULTS, help=f"default {KEPT_RESULTS}")
    options = parser.parse_args(arguments)

    python = vllm_python()
    model = build_tiny_model(python)
    workload = SharedPrefixWorkload("fleet", options.prefixes, options.rounds, options.words)
    measurements: dict[str, Measurement] = {}
    for strategy in options.strategies:
        sys.stderr.write(f"{strategy}: starting {options.replicas} replicas\n")
        with running_replicas(python, model, [ReplicaOptions()] * options.replicas) as replicas:
            sys.stderr.write(f"{strategy}: measuring\n")
            measurements[strategy] = _measure(
                strategy, replicas, workload, options.concurrency, options.concurrency_threshold
            )
    document = {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "command": "make bench-vllm",
        "machine": description(),
        "versions": {
            "prefix_router": __version__,
            "python": platform.python_version(),
            **engine_versions(python),
            "openai": version("openai"),
        },
        "replicas": options.replicas,
        "threads_per_replica": threads_per_replica(options.replicas),
        "workload": {
            "prefixes": workload.prefixes,
            "rounds": workload.rounds,
            "prefix_words": workload.prefix_words,
            "concurrency": options.concurrency,
            "concurrency_threshold": options.concurrency_threshold,
        },
        "strategies": summarize(measurements),
    }
    report = markdown(document)
    write(options.output, "vllm_fleet", report, document)
    sys.stdout.write(report)
    return 0


def _measure(
    strategy: str,
    replicas: Sequence[Replica],
    workload: SharedPrefixWorkload,
    concurrency: int,
    threshold: int,
) -> Measurement:
    async def warmed_up(router: Router) -> Measurement:
        draws = random.Random("warm-up")
        async with router.client() as client:
            for _ in range(_WARM_UP_REQUESTS * len(replicas)):
                await ask(client, [{"role": "user", "content": some_text(draws, 100)}])
        return await measure(strategy, router, replicas, workload, concurrency)

    log = LOGS / f"bench-router-{strategy}.log"
    flags = ["--concurrency-threshold", str(threshold)]
    with running_router(replicas, strategy, log, flags) as router:
        return asyncio.run(warmed_up(router))


if __name__ == "__main__":
    sys.exit(main())
