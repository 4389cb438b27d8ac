"""Every strategy on every workload and load, simulated, and judged.

    python -m benchmarks.fleetsim_grid [--traces DIRECTORY] [--workloads NAME ...] [--strategies NAME ...]
    python -m benchmarks.fleetsim_grid --report-only

Rows go to `benchmarks/results/routing_grid.json` workload by workload. Those that are run again are replaced.
What is said of them goes to `docs/routing-results.md`, where only what stands between two marks is replaced.
Workloads whose traces are not there keep the rows that they have. Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.fleetsim_grid.cases import STRATEGIES, WORKLOADS
from benchmarks.fleetsim_grid.page import write_page
from benchmarks.fleetsim_grid.runs import merged, run
from benchmarks.support.machine import description
from prefix_router import __version__

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "routing_grid.json"
PAGE = ROOT / "docs" / "routing-results.md"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleetsim_grid", description=(__doc__ or "").partition("\n")[0]
    )
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--traces", type=Path, default=Path("traces"), help="default: ./traces")
    parser.add_argument("--workloads", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default 2")
    parser.add_argument("--report-only", action="store_true", help="simulate nothing, write the page anew")
    options = parser.parse_args(arguments)
    document: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"workloads": {}}
    if not options.report_only:
        _simulate(document, options)
    found = document["workloads"]
    document["workloads"] = {name: found[name] for name in names if name in found}
    write_page(PAGE, document)
    return 0


def _simulate(document: dict[str, Any], options: argparse.Namespace) -> None:
    traces: Path = options.traces
    for workload in WORKLOADS:
        if workload.name not in options.workloads:
            continue
        missing = workload.missing(traces)
        if missing is not None:
            print(f"{workload.name}: left out, {traces / missing} is not there", file=sys.stderr, flush=True)
            continue
        started = time.monotonic()
        requests = workload.make(traces)
        gc.freeze()  # Forked processes then leave the pages of the requests alone.
        rows = run(workload, requests, options.strategies, options.jobs)
        document["workloads"][workload.name] = merged(document["workloads"].get(workload.name, {}), rows)
        document["machine"] = f"{description()}, prefix-router {__version__}"
        RESULTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"{workload.name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
