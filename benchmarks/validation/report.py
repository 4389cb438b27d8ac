"""The results of the validation for people: one table a part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.support.report import table


def markdown(document: Mapping[str, Any]) -> str:
    """Return the parts that a run has done, as Markdown."""
    parts = ["# Is the simulator true?", _origin(document)]
    if "engine" in document:
        parts += [_ENGINE, _engine_table(document["engine"])]
    if "fleet" in document:
        parts += [_FLEET, _fleet_table(document["fleet"])]
    disagreements = _disagreements([*document.get("engine", []), *document.get("fleet", [])])
    if disagreements:
        parts += ["Where they differ:", disagreements]
    if "published" in document:
        points = document["published"]["points"]
        shown = f"{document['published']['sagemaker_rate']:g}/s"
        parts += [_PUBLISHED, _points_table(points, "kernel measurements", "llm-d")]
        parts += [_SAGEMAKER.format(rate=shown), _sagemaker_table(points, shown)]
    return "\n\n".join(parts)


_ENGINE = """\
## Cached tokens of one replica

`usage.prompt_tokens_details.cached_tokens` of a real vLLM against the engine model, request by request.
Requests come one by one, and in groups whose members find each other in the queue; the cache holds a few
prompts."""

_FLEET = """\
## Replica and cached tokens behind the router

The same through `prefix-router serve`, one request after the other; a match is the same replica *and* the
same cached tokens."""

_PUBLISHED = """\
## Published points

What the sources leave open is assumed in `benchmarks/validation/published.py` and explained in
docs/simulator.md."""

_SAGEMAKER = """\
SageMaker at {rate}, where P90's gain as a share of P50's comes closest (the rate was not published), and at
the other rates that were tried:"""


def _origin(document: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
    return (
        f"Measured on {document['measured_on']} with {versions}. To measure again: `{document['command']}`."
    )


def _engine_table(results: Sequence[Mapping[str, Any]]) -> str:
    return table(
        (
            "block",
            "KV tokens",
            "requests",
            "match",
            "with hits",
            "lost blocks to eviction",
            "hit tokens: vLLM, model",
            "preemptions",
        ),
        [
            (
                one["cache"]["block_size_tokens"],
                f"{one['cache']['blocks'] * one['cache']['block_size_tokens']:,}",
                one["requests"],
                f"**{one['matches']} of {one['requests']}**",
                one["requests_with_hits"],
                one["requests_that_lost_blocks_to_eviction"],
                _pair(one, "hit_tokens"),
                _pair(one, "preemptions"),
            )
            for one in results
        ],
    )


def _pair(result: Mapping[str, Any], counter: str) -> str:
    counters = result["counters"]
    return f"{counters['vllm'][counter]:,}, {counters['model'][counter]:,}"


def _fleet_table(results: Sequence[Mapping[str, Any]]) -> str:
    return table(
        ("strategy", "match", "with hits", "requests of each replica"),
        [
            (
                f"`{one['strategy']}`",
                f"**{one['matches']} of {one['requests']}**",
                one["requests_with_hits"],
                ", ".join(str(count) for count in one["requests_by_backend"].values()),
            )
            for one in results
        ],
    )


def _disagreements(results: Sequence[Mapping[str, Any]]) -> str:
    mismatches = [mismatch for result in results for mismatch in result["mismatches"]]
    return "" if not mismatches else table(tuple(mismatches[0]), [tuple(one.values()) for one in mismatches])


def _points_table(points: Sequence[Mapping[str, Any]], *sources: str) -> str:
    return table(
        ("source", "setting", "quantity", "published", "simulated", "off by"),
        [
            (
                point["source"],
                point["setting"],
                point["quantity"],
                _value(point["published"], point["unit"]),
                _value(point["simulated"], point["unit"]),
                _percent(point["deviation"]),
            )
            for point in points
            if point["source"] in sources
        ],
    )


def _sagemaker_table(points: Sequence[Mapping[str, Any]], shown: str) -> str:
    ours = [point for point in points if point["source"] == "SageMaker"]
    settings = [shown, *(one for one in dict.fromkeys(point["setting"] for point in ours) if one != shown)]
    found = {(point["quantity"], point["setting"]): point for point in ours}
    rows = []
    for quantity in dict.fromkeys(point["quantity"] for point in ours):
        first = found[quantity, shown]
        rows.append(
            (
                quantity,
                _value(first["published"], first["unit"]),
                f"**{_value(first['simulated'], first['unit'])}**",
                _percent(first["deviation"]),
                *(_value(found[quantity, one]["simulated"], first["unit"]) for one in settings[1:]),
            )
        )
    return table(("quantity", "published", shown, "off by", *settings[1:]), rows)


def _value(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit == "share":
        return f"{value:.1%}"
    if unit == "ratio":
        return f"{value:.2f}"
    return f"{value:,.0f} {unit.removeprefix('tokens')}".strip()


def _percent(deviation: float | None) -> str | None:
    return None if deviation is None else f"{deviation:+.1%}"
