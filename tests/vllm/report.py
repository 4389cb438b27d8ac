"""The result table of the suite: printed at the end of every run, kept in the repository on request.

A run writes to `build/vllm/`. Only with `VLLM_RESULTS=1` in the environment does it also replace `vllm.md`
and `vllm.json` in `benchmarks/results/`: a plain run, in CI above all, leaves the tree as it was.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.vllm.measurement import CONCURRENCY, Measurement
from benchmarks.support.vllm.workload import SharedPrefixWorkload, percentile
from prefix_router import __version__

RESULTS_TABLE = pytest.StashKey[str]()
"""Under it a test leaves the table that is printed at the end."""

REPRODUCE_COMMAND = "VLLM_RESULTS=1 make test-vllm"
PERCENTS = (50, 90, 99)
GOAL_TTFT_RATIO = 0.4


def results_document(
    measurements: Mapping[str, Measurement],
    workload: SharedPrefixWorkload,
    *,
    engine_versions: Mapping[str, str],
    replica_count: int,
    threads_per_replica: int,
) -> dict[str, Any]:
    """Return all of one run that is worth keeping, as plain values; rates are fractions."""
    strategies = {name: _strategy(measurement) for name, measurement in measurements.items()}
    aware, blind = strategies["prefix_aware"], strategies["random"]
    return {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "command": REPRODUCE_COMMAND,
        "versions": {
            "prefix_router": __version__,
            "python": platform.python_version(),
            **engine_versions,
            "openai": version("openai"),
            "aiohttp": version("aiohttp"),
        },
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "architecture": platform.machine(),
            "replicas": replica_count,
            "threads_per_replica": threads_per_replica,
        },
        "workload": {
            "prefixes": workload.prefixes,
            "requests_per_prefix": workload.rounds,
            "concurrency": CONCURRENCY,
            "mean_prompt_tokens": aware["mean_prompt_tokens"],
            "block_size_tokens": measurements["prefix_aware"].block_size_tokens,
        },
        "strategies": strategies,
        "ttft_p50_ratio": round(aware["ttft_ms"]["p50"] / blind["ttft_ms"]["p50"], 3),
        "goal_ttft_p50_ratio": GOAL_TTFT_RATIO,
    }


def _strategy(measurement: Measurement) -> dict[str, Any]:
    milliseconds = [answer.first_token_seconds * 1000 for answer in measurement.answers]
    return {
        "requests": len(measurement.answers),
        "mean_prompt_tokens": round(measurement.queried_tokens / len(measurement.answers)),
        "queried_tokens": measurement.queried_tokens,
        "hit_tokens": measurement.hit_tokens,
        "hit_rate": round(measurement.hit_rate, 4),
        "ideal_hit_rate": round(measurement.ideal_hit_rate, 4),
        "ttft_ms": {f"p{percent}": round(percentile(milliseconds, percent)) for percent in PERCENTS},
        "share": sorted((round(share, 3) for share in measurement.share.values()), reverse=True),
    }


def results_table(document: Mapping[str, Any]) -> str:
    """Return the document for people, as Markdown."""
    machine, workload, versions = document["machine"], document["workload"], document["versions"]
    return f"""\
# Real vLLM: random against prefix-aware

{machine["replicas"]} replicas of vLLM {versions["vllm"]} with a tiny random-weight model on
{machine["cores"]} cores ({machine["architecture"]}); compute threads each: {machine["threads_per_replica"]}.
{workload["prefixes"]} prefixes, each asked {workload["requests_per_prefix"]} times with another ending,
{workload["concurrency"]} requests at a time, {workload["mean_prompt_tokens"]:,} prompt tokens on average.

| strategy | token hit rate | ideal | of the ideal | TTFT P50 ms | P90 | P99 | share of each replica |
|---|---|---|---|---|---|---|---|
{_rows(document["strategies"])}

P50 TTFT of `prefix_aware` is **{document["ttft_p50_ratio"]:.2f}** of random's
(goal: at most {document["goal_ttft_p50_ratio"]}).

Hit rates are vLLM's own: `vllm:prefix_cache_hits_total` ÷ `vllm:prefix_cache_queries_total`, both in tokens,
summed over the replicas. Ideal means that only the first request of a prefix is cold; what is left to 100% is
those first requests, the endings, and the last block of each prefix, which is seldom full
({workload["block_size_tokens"]} tokens are a block). Times are the client's, from sending a streaming request
to its first event. They depend on the machine and on what else runs there; the hit rates do not.

Measured on {document["measured_on"]} with {", ".join(" ".join(pair) for pair in versions.items())}.
To measure again: `{document["command"]}`.
"""


def _rows(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(
        f"| `{name}` | {one['hit_rate']:.1%} | {one['ideal_hit_rate']:.1%} "
        f"| {one['hit_rate'] / one['ideal_hit_rate']:.1%} | "
        + " | ".join(str(one["ttft_ms"][f"p{percent}"]) for percent in PERCENTS)
        + f" | {', '.join(f'{share:.0%}' for share in one['share'])} |"
        for name, one in strategies.items()
    )


def write_results(document: Mapping[str, Any], directories: Sequence[Path]) -> None:
    """Write `vllm.md` and `vllm.json` into each directory."""
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "vllm.json").write_text(json.dumps(document, indent=2) + "\n")
        (directory / "vllm.md").write_text(results_table(document))
