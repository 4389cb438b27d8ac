"""Runs the validation, prints its tables, and writes them with everything behind them.

    python -m benchmarks.validation [--parts engine fleet published] [--single 200] [--output DIRECTORY]

`engine` and `fleet` need a vLLM environment (`scripts/setup_vllm.sh .venv-vllm`), `published` needs nothing.
Exit status 1 when model and vLLM disagree about a request; a published point has no bound that would make it
right or wrong, so none of them fails.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.support.machine import description
from benchmarks.support.report import write
from benchmarks.support.vllm.fleet import build_tiny_model, engine_versions, running_replicas, vllm_python
from benchmarks.support.vllm.paths import KEPT_RESULTS
from benchmarks.validation.exact import compare_engine, compare_fleet, small_cache
from benchmarks.validation.published import all_points, nearest_rate
from benchmarks.validation.report import markdown
from prefix_router import __version__

PARTS = ("engine", "fleet", "published")
BLOCK_SIZES = (128, 32)
"""What vLLM uses on a CPU, and the smallest that it can use there."""
FLEET_REPLICAS = 2
FLEET_STRATEGIES = ("prefix_aware", "round_robin")
"""Those that neither draw at random nor measure time, and so decide alike on both sides."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.validation", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--single", type=int, default=200, help="requests asked one by one; default 200")
    parser.add_argument("--groups", type=int, default=4, help="groups of each concurrent kind; default 4")
    parser.add_argument("--output", type=Path, default=KEPT_RESULTS, help=f"default {KEPT_RESULTS}")
    options = parser.parse_args(arguments)

    document: dict[str, Any] = {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "command": "make validate-simulator",
        "machine": description(),
        "versions": {"prefix_router": __version__, "python": platform.python_version()},
    }
    agree = True
    if {"engine", "fleet"} & set(options.parts):
        agree = _against_vllm(document, options.parts, options.single, options.groups)
    if "published" in options.parts:
        points = all_points()
        document["published"] = {
            "sagemaker_rate": nearest_rate(points),
            "points": [point.document() for point in points],
        }
    report = markdown(document)
    write(options.output, "validation", report, document)
    sys.stdout.write(report + "\n")
    return 0 if agree else 1


def _against_vllm(document: dict[str, Any], parts: Sequence[str], single: int, groups: int) -> bool:
    """Do the parts that need a real vLLM; return whether the model agrees with it."""
    python = vllm_python()
    model = build_tiny_model(python)
    document["versions"] |= engine_versions(python)
    agree = True
    if "engine" in parts:
        # One works while the other waits: what is compared does not depend on time, but a group does.
        with running_replicas(python, model, [small_cache(size) for size in BLOCK_SIZES]) as replicas:
            engines = [asyncio.run(compare_engine(replica, single, groups)) for replica in replicas]
        document["engine"] = [one.document() for one in engines]
        agree &= all(one.agrees for one in engines)
    if "fleet" in parts:
        with running_replicas(python, model, [small_cache(BLOCK_SIZES[0])] * FLEET_REPLICAS) as replicas:
            fleets = asyncio.run(compare_fleet(replicas, FLEET_STRATEGIES, single))
        document["fleet"] = [one.document() for one in fleets]
        agree &= all(one.agrees for one in fleets)
    return agree


if __name__ == "__main__":
    sys.exit(main())
