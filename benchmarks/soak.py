"""A hundred thousand requests of every kind through one router: does anything grow, and do the counts agree?

    python -m benchmarks.soak [--requests 100000] [--workers N] [--output DIRECTORY]

One router process, two backend processes, a client in a process of its own
(`benchmarks/support/soak_client.py`, the mixture in `traffic_mix.py`). Judged: every request ended as its
kind must; resident memory over the second half has no slope; open files and asyncio tasks are at the end what
they were at the start; every in-flight count is zero; the totals in `/metrics` are what the client has
counted. Exit status 1 when one of these does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import linear_regression
from typing import Any

from benchmarks.support.backend_process import BackendProcess
from benchmarks.support.machine import description
from benchmarks.support.report import file_name, processes, see_also, table, with_workers, write
from benchmarks.support.router_process import Footprint, RouterProcess
from benchmarks.support.scenario import FILES_SLACK
from benchmarks.support.soak_client import USERS
from benchmarks.support.traffic_mix import FIRST_BYTE_SECONDS, KINDS

RESULTS = Path(__file__).parent / "results"
GROWTH_BOUND_MB = 2.0
"""What the regression line of the resident memory may rise by over the second half of the run."""
TASKS_SLACK = 2
"""A probe or an admin request may run at the moment of counting."""
_SAMPLE_SECONDS = 0.5
_SETTLE_SECONDS = 20.0
_WARM_UP_REQUESTS = 500

SETTINGS: dict[str, Any] = {
    "timeouts": {"first_byte_seconds": FIRST_BYTE_SECONDS, "upstream_keepalive_seconds": 2},
    # Failures are part of the mixture here, and no reason to eject a backend.
    "health": {"request_failures": 1000},
    "engine_metrics": {"interval_seconds": 0},
    "logging": {"level": "error"},
}


@dataclass
class Samples:
    """Resident memory over time, and footprints."""

    at_seconds: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)

    async def collect(self, router: RouterProcess) -> None:
        """Sample until cancelled."""
        began = time.monotonic()
        while True:
            self.at_seconds.append(time.monotonic() - began)
            self.resident_mb.append(router.resident_mb())
            if len(self.at_seconds) % 10 == 1:
                self.footprints.append(await router.footprint())
            await asyncio.sleep(_SAMPLE_SECONDS)

    def growth_mb(self) -> float:
        """Return what the regression line over the second half rises by from its first to its last sample."""
        half = len(self.at_seconds) // 2
        times, sizes = self.at_seconds[half:], self.resident_mb[half:]
        if len(times) < 2:
            return 0.0
        return linear_regression(times, sizes).slope * (times[-1] - times[0])


@dataclass
class Result:
    """What a run showed."""

    requests: int
    seconds: float
    seen: dict[str, int]
    unexpected: dict[str, int]
    totals: dict[str, tuple[int, int]]
    before: Footprint
    highest: Footprint
    after: Footprint
    unfinished: int
    growth_mb: float
    checks: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tasks_back = (self.after.tasks or 0) <= (self.before.tasks or 0) + TASKS_SLACK
        self.checks = {
            "every request ended as it should": not self.unexpected
            and sum(self.seen.values()) == self.requests,
            "memory flat over the second half": self.growth_mb <= GROWTH_BOUND_MB,
            "open files back": self.after.files <= self.before.files + FILES_SLACK,
            "asyncio tasks back": tasks_back,
            "every in-flight count at zero": self.unfinished == 0,
            "/metrics agrees with the client": all(ours == theirs for ours, theirs in self.totals.values()),
        }

    @property
    def held(self) -> bool:
        """Whether everything that was promised came true."""
        return all(self.checks.values())


async def play(router: RouterProcess, requests: int, seed: int) -> dict[str, dict[str, int]]:
    """Run the client program and return what it counted."""
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.support.soak_client", "--port", str(router.port)),
        *("--requests", str(requests), "--seed", str(seed)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await client.communicate()
    counted: dict[str, dict[str, int]] = json.loads(output)
    return counted


async def run(requests: int, workers: int) -> Result:
    """Start everything, play the mixture, judge."""
    backends = [BackendProcess(name) for name in "ab"]
    router = None
    try:
        for backend in backends:
            await backend.start()
        urls = [{"name": backend.name, "url": backend.url} for backend in backends]
        router = RouterProcess({"backends": urls, **SETTINGS}, workers)
        await router.start()
        await play(router, min(requests, _WARM_UP_REQUESTS), seed=1)
        await router.settled(_SETTLE_SECONDS)
        await asyncio.sleep(2 * SETTINGS["timeouts"]["upstream_keepalive_seconds"])
        before, metrics_before = await router.footprint(), await router.metrics()
        samples = Samples()
        sampling = asyncio.create_task(samples.collect(router))
        began = time.monotonic()
        counted = await play(router, requests, seed=2)
        seconds = time.monotonic() - began
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        unfinished = await router.settled(_SETTLE_SECONDS)
        await asyncio.sleep(2 * SETTINGS["timeouts"]["upstream_keepalive_seconds"])
        after, metrics = await router.footprint(), await router.metrics()
    finally:
        if router is not None:
            await router.stop()
        for backend in backends:
            await backend.kill()
    gained = {name: value - metrics_before.get(name, 0) for name, value in metrics.items()}
    return Result(
        requests,
        round(seconds, 1),
        counted["seen"],
        counted["unexpected"],
        _compare(gained, counted["seen"]),
        before,
        Footprint(
            round(max(samples.resident_mb), 1),
            max(footprint.files for footprint in samples.footprints),
            max(footprint.tasks or 0 for footprint in samples.footprints) or None,
        ),
        after,
        unfinished,
        round(samples.growth_mb(), 2),
    )


def _compare(gained: dict[str, float], seen: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return (counted by the router, counted by the client) for each total that both know."""

    def router(metric: str, label: str = "") -> int:
        prefix = f"prefix_router_{metric}"
        found = [
            value for name, value in gained.items() if name.partition("{")[0] == prefix and label in name
        ]
        return round(sum(found))

    by_class: Counter[str] = Counter()
    for kind in KINDS:
        by_class[kind.status_class] += seen.get(kind.name, 0)
    left = sum(count for name, count in seen.items() if name.startswith("client left"))
    pairs = {
        f'requests_total{{status_class="{status_class}"}}': (
            router("requests_total", f'status_class="{status_class}"'),
            by_class[status_class],
        )
        for status_class in sorted(by_class)
    }
    pairs["requests_total"] = (router("requests_total"), sum(seen.values()))
    pairs["client_disconnects_total"] = (router("client_disconnects_total"), left)
    for metric, label, kind_name in (
        ("upstream_truncated_total", "", "broken off by the backend"),
        ("rejected_requests_total", 'code="invalid_affinity_id"', "4xx of the router"),
        ("rejected_requests_total", 'code="backend_unreachable"', "reset by backends (502)"),
        ("rejected_requests_total", 'code="backend_timeout"', "no first byte (504)"),
    ):
        name = f"{metric}{{{label}}}" if label else metric
        pairs[name] = (router(metric, label), seen.get(kind_name, 0))
    return pairs


def markdown(result: Result, workers: int, command: str) -> str:
    """Return the report as text."""
    seen_rows = [(kind.name, kind.status_class, f"{result.seen.get(kind.name, 0):,}") for kind in KINDS]
    total_rows = [(f"`{name}`", f"{ours:,}", f"{theirs:,}") for name, (ours, theirs) in result.totals.items()]
    footprint_rows = [
        (name, footprint.resident_mb, footprint.files, footprint.tasks)
        for name, footprint in (
            ("before", result.before),
            ("highest", result.highest),
            ("after", result.after),
        )
    ]
    check_rows = [(name, "held" if held else "**failed**") for name, held in result.checks.items()]
    lost = sum(result.unexpected.values())
    return f"""# Soak{with_workers(workers)}

`{command}` on {description()}:
{result.requests:,} requests in {result.seconds:g} s with {USERS} at a time, **{lost} ended otherwise than
they should**. {processes(workers)}.
The regression line of the resident memory over the second half rises by {result.growth_mb:g} MB (bound:
{GROWTH_BOUND_MB:g} MB). In-flight counts and active requests at the end: {result.unfinished}.
{see_also("soak", workers)}

{table(("promise", "outcome"), check_rows)}

## What was sent

{table(("kind", "status class", "requests, all seen as they should"), seen_rows)}
{"" if not result.unexpected else f"Otherwise: {result.unexpected}"}

## What the router holds

{table(("", "resident MB", "open files", "asyncio tasks"), footprint_rows)}

## Who counted what

{table(("metric", "router", "client"), total_rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1, help="router processes behind the port")
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        help="where soak.md and soak.json go; with several workers soak_N_workers.*",
    )
    options = parser.parse_args()
    result = asyncio.run(run(options.requests, options.workers))
    command = " ".join(["python -m benchmarks.soak", *sys.argv[1:]])
    document = {
        "command": command,
        "workers": options.workers,
        "machine": description(),
        "settings": SETTINGS,
        **asdict(result),
        "held": result.held,
    }
    name = file_name("soak", options.workers)
    write(options.output, name, markdown(result, options.workers, command), document)
    for name, held in result.checks.items():
        print(f"{name}: {'held' if held else 'FAILED'}")
    print(
        f"{result.requests} requests in {result.seconds:g} s, growth {result.growth_mb:g} MB",
        result.unexpected,
    )
    return 0 if result.held else 1


if __name__ == "__main__":
    sys.exit(main())
