"""Measures routers under the same loads, on the same core, in front of the same backend.

    python -m benchmarks.dataplane [--quick] [--routers NAME,…] [--workloads NAME,…] [--rounds N]
                                   [--seconds N] [--workers] [--output DIRECTORY]

One router at a time runs, pinned to a core; the backend and the load generator are pinned to another. In
each round every router gets every load, in another order each time, and the load also goes straight to the
backend. `--workers` compares two workers of prefix_router with one as well. Written: `dataplane.json` (every
round), `dataplane.md`, `dataplane.svg`. `--quick`: one short round of the main loads, written to
`build/dataplane`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.dataplane.chart import svg
from benchmarks.dataplane.measure import Bench, Sample, backend
from benchmarks.dataplane.processes import Cores
from benchmarks.dataplane.report import markdown
from benchmarks.dataplane.routers import (
    DIRECT,
    ROUTERS,
    MissingError,
    Router,
    interpreters,
    tool,
    with_workers,
)
from benchmarks.dataplane.summary import summarize
from benchmarks.dataplane.workloads import QUICK, WORKLOADS, Workload
from benchmarks.support.machine import description, raise_file_limit
from benchmarks.support.report import write

ROOT = Path(__file__).resolve().parents[2]
_FOR_WORKERS = ("small", "large")
_WORKERS = (with_workers(1), with_workers(2))


def order(names: Sequence[str], number: int) -> list[str]:
    """Return the order of a round: each begins at another name, and every other one goes backwards."""
    first = number % len(names)
    turned = [*names[first:], *names[:first]]
    return turned[::-1] if number % 2 else turned


def say(sample: Sample) -> None:
    """Print one result in a line."""
    line = f"round {sample.round + 1}  {sample.router:21}{sample.workload:9}"
    if sample.load is None:
        print(f"{line}{sample.failure.strip().splitlines()[-1]}", flush=True)
        return
    load = sample.load
    cpu = "" if sample.cpu_us is None else f"{sample.cpu_us:,.1f} µs"
    memory = "" if sample.memory_mb is None else f"{sample.memory_mb:.0f} MB"
    print(
        f"{line}{load.requests / load.seconds:9,.0f}/s {cpu:>12}  P50 {load.p50_us / 1000:8.2f} ms"
        f"  P99 {load.p99_us / 1000:8.2f} ms {memory:>8}  errors {load.errors}"
        f"  busy: router {load.busy.router:.0%}, load {load.busy.load:.0%}, others {load.busy.others:.0%}",
        flush=True,
    )


def measure(
    routers: Sequence[Router], workloads: Sequence[Workload], rounds: int, seconds: int, cores: Cores
) -> list[Sample]:
    """Run all rounds and return every result."""
    os.sched_setaffinity(0, cores.load)
    by_name = {router.name: router for router in routers}
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="dataplane-") as folder, backend(cores) as (pid, ports):
        bench = Bench(cores, pid, ports, Path(folder), seconds, say)
        for number in range(rounds):
            for name in order([DIRECT, *by_name], number):
                if name == DIRECT:
                    samples += bench.direct(number, workloads)
                else:
                    samples += bench.router(number, by_name[name], workloads)
    return samples


def arguments() -> argparse.Namespace:
    """Read the command line; what `--quick` stands for is filled in."""
    known = [router.name for router in ROUTERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--routers", help=f"of {','.join(known)}")
    parser.add_argument("--workloads", help=f"of {','.join(workload.name for workload in WORKLOADS)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = ROOT / "build" / "dataplane" if options.quick else ROOT / "benchmarks" / "results"
    options.output = options.output or results
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (2 if options.quick else 4)
    usual = QUICK if options.quick else [workload.name for workload in WORKLOADS]
    for name, default, allowed in (
        ("routers", known, known),
        ("workloads", usual, [workload.name for workload in WORKLOADS]),
    ):
        text = getattr(options, name)
        chosen = list(default) if text is None else [part for part in text.split(",") if part]
        if unknown := set(chosen) - set(allowed):
            parser.error(f"--{name}: {', '.join(sorted(unknown))}: choose of {', '.join(allowed)}")
        setattr(options, name, chosen)
    if "paced" in options.workloads:
        options.workloads.append("small")  # it says what the router's limit is
    return options


def main() -> int:
    """Measure, and write the results."""
    options = arguments()
    tool("wrk")
    raise_file_limit(65536)
    available = sorted(os.sched_getaffinity(0))
    routers = [router for router in ROUTERS if router.name in options.routers]
    workloads = [workload for workload in WORKLOADS if workload.name in options.workloads]
    versions = {router.name: router.version() for router in routers}
    began = time.monotonic()
    samples = measure(routers, workloads, options.rounds, options.seconds, Cores.of(available))
    workers: list[Sample] = []
    if options.workers:
        of_workers = [workload for workload in WORKLOADS if workload.name in _FOR_WORKERS]
        cores = Cores.of(available, 2)
        workers = measure(_WORKERS, of_workers, options.rounds, options.seconds, cores)
    facts = {
        "command": "`" + " ".join(["python -m benchmarks.dataplane", *sys.argv[1:]]) + "`",
        "machine": description(),
        "rounds": f"{options.rounds}, with {options.seconds} s for each measurement; "
        f"{time.monotonic() - began:.0f} s in all",
        "interpreters": _interpreters(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    write_results(options.output, samples, workers, facts)
    return 0


def _interpreters() -> str:
    measured, here, faster = interpreters()
    text = (
        f"prefix_router runs under CPython {measured} (scripts/setup_bench_python.sh); the plain build is the"
    )
    return f"{text} {here} of .venv, on which a loop of plain Python takes {faster:.2f} × as long"


def write_results(
    folder: Path, samples: Sequence[Sample], workers: Sequence[Sample], facts: Mapping[str, str]
) -> None:
    """Write `dataplane.json`, `.md` and `.svg`."""
    rows, of_workers = summarize(samples), summarize(workers, _WORKERS[0].name)
    titles = {router.name: router.title for router in ROUTERS} | {DIRECT: "no router"}
    loads = {workload.name: workload.title for workload in WORKLOADS}
    document = {
        "facts": facts,
        "summary": [asdict(row) for row in rows],
        "workers": [asdict(row) for row in of_workers],
        "samples": [asdict(sample) for sample in samples],
        "samples_of_workers": [asdict(sample) for sample in workers],
    }
    text = markdown(rows, [row for row in of_workers if row.router != DIRECT], loads, titles, facts)
    write(folder, "dataplane", text, document)
    (folder / "dataplane.svg").write_text(svg(rows, loads, titles))
    print(f"written: {folder}/dataplane.json, .md, .svg")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingError as error:
        sys.exit(f"dataplane: {error}")
