"""From measurements to a result: hit rates, times, and their ratios to other strategies. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from benchmarks.support.report import table
from benchmarks.support.vllm.measurement import Measurement
from benchmarks.support.vllm.workload import percentile

PERCENTS = (50, 90, 99)
COMPARED_WITH = ("random", "least_outstanding_requests")


def summarize(measurements: Mapping[str, Measurement]) -> dict[str, Any]:
    """Return one entry for each strategy, as plain values; rates are fractions, times milliseconds.

    The ratios are those of this strategy's times to the other's; there are none to one that was not measured.
    """
    entries = {name: _entry(measurement) for name, measurement in measurements.items()}
    for entry in entries.values():
        entry["ttft_ratio_to"] = {
            other: {
                quantile: round(entry["ttft_ms"][quantile] / entries[other]["ttft_ms"][quantile], 3)
                for quantile in entry["ttft_ms"]
            }
            for other in COMPARED_WITH
            if other in entries
        }
    return entries


def _entry(measurement: Measurement) -> dict[str, Any]:
    milliseconds = [answer.first_token_seconds * 1e3 for answer in measurement.answers]
    return {
        "requests": len(measurement.answers),
        "mean_prompt_tokens": round(measurement.queried_tokens / len(measurement.answers)),
        "queried_tokens": measurement.queried_tokens,
        "hit_tokens": measurement.hit_tokens,
        "hit_rate": round(measurement.hit_rate, 4),
        "ideal_hit_rate": round(measurement.ideal_hit_rate, 4),
        "ttft_ms": {
            "mean": round(fmean(milliseconds), 1),
            **{f"p{percent}": round(percentile(milliseconds, percent), 1) for percent in PERCENTS},
        },
        "requests_by_backend": dict(Counter(answer.backend for answer in measurement.answers).most_common()),
        "requests_by_reason": dict(Counter(answer.reason for answer in measurement.answers).most_common()),
    }


def markdown(document: Mapping[str, Any]) -> str:
    """Return the whole result for people."""
    workload, strategies = document["workload"], document["strategies"]
    versions = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
    tokens = next(iter(strategies.values()))["mean_prompt_tokens"]
    return f"""\
# Strategies on a fleet of real vLLM

{document["replicas"]} replicas of vLLM with a tiny random-weight model on
{document["machine"]};
compute threads each: {document["threads_per_replica"]}.
{workload["prefixes"]} prefixes, each asked {workload["rounds"]} times with another ending,
{workload["concurrency"]} requests at a time, {tokens:,} prompt tokens on average.
A home overflows at {workload["concurrency_threshold"]} requests in flight.
The same requests for every strategy, each on replicas that were started for it: all caches are cold.

{_rates(strategies)}

Times to first token as ratios to those of other strategies (below 1 is faster):

{_ratios(strategies)}

Hit rates are vLLM's own counters, in tokens, over all replicas; ideal means that only the first request of
each prefix is cold. Times are the client's, from sending a request to the first event of its answer, and
depend on the machine: compare the ratios.

Measured on {document["measured_on"]} with {versions}. To measure again: `{document["command"]}`.
"""


def _rates(strategies: Mapping[str, Any]) -> str:
    return table(
        ("strategy", "hit rate", "ideal", "TTFT mean ms", "P50", "P90", "P99", "requests of each replica"),
        [
            (
                f"`{name}`",
                f"{one['hit_rate']:.1%}",
                f"{one['ideal_hit_rate']:.1%}",
                *(f"{milliseconds:,.0f}" for milliseconds in one["ttft_ms"].values()),
                ", ".join(str(count) for count in one["requests_by_backend"].values()),
            )
            for name, one in strategies.items()
        ],
    )


def _ratios(strategies: Mapping[str, Any]) -> str:
    return table(
        ("strategy", "to", "mean", "P50", "P90", "P99"),
        [
            (f"`{name}`", f"`{other}`", *(f"{ratio:.2f}" for ratio in ratios.values()))
            for name, one in strategies.items()
            for other, ratios in one["ttft_ratio_to"].items()
            if other != name
        ],
    )
