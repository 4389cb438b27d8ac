"""Writes what was measured as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.dataplane.routers import DIRECT
from benchmarks.dataplane.summary import BUSY, Row
from benchmarks.support.report import table

HOW = """\
Each router in turn runs alone, pinned to one core with all its processes and threads; a backend that costs
next to nothing and the load generator are pinned to another. In each round every router gets every load, in
another order each time, and the load also goes straight to the backend. Figures are medians over the rounds;
ratios are taken within a round, and then their median.

- *CPU*: user and system time of the router's processes per request (per stream), as the system counts it.
- *added*: milliseconds more than without a router in the same round. At full load that is mostly waiting in
  line.
- *first*: the same for the time until the first event of a stream, at the median.
- *memory*: the proportional share (PSS) of all its processes after the load.
- *load*: how busy the core of load and backend was; above 95% the load was at its limit, and the rate is a
  lower bound.
- *disturbed*: other programs used more than 0.15 of the cores meanwhile, in so many of the rounds.

Every body of a stream is compared with what the backend sent, byte by byte (LiteLLM writes events anew: of
its streams, the texts). Prompts differ (512 bodies, four of which begin alike; 64 bodies of 400 KB). Every
router gets the same bytes. No session header is sent: vllm-router's consistent_hash then hashes the body,
which costs it less than reading the header. prefix_router runs with all its defaults, metrics and
health checks included, under the interpreter that LiteLLM has as well; *plain Python build* is the same
router under the interpreter of this checkout's own environment. All routers log warnings only, and are given
room for 100,000 requests at once where they have such a limit. LiteLLM runs without keys and database, with a
price for the model. nginx knows nothing of prompts: it is the floor.

Streams take their time whatever the router does: with them the rate is at most 625/s (5 ms), 310/s (50 ms)
and 3,900/s (mixed), and CPU is what to compare.
"""


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _added(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ×"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def workload_table(rows: Iterable[Row], titles: Mapping[str, str]) -> str:
    """Return the table of one load."""
    heads = ["router", "requests/s", "to ours", "CPU µs", "to ours"]
    heads += ["added P50 ms", "added P99 ms", "first ms", "memory MB", "errors", "load", "notes"]
    lines = []
    for row in rows:
        memory, cpu = _number(row.memory_mb), _number(row.cpu_us)
        added = [_added(row.added_p50_ms), _added(row.added_p99_ms), _added(row.added_first_p50_ms)]
        if row.router == DIRECT:
            added = [f"(P50 {_number(row.p50_ms, 2)})", "–", "–"]
        cells = [titles.get(row.router, row.router), _number(row.rate), _ratio(row.rate_ratio), cpu]
        cells += [_ratio(row.cpu_ratio), *added, memory, str(row.errors), _share(row.load_core_busy)]
        lines.append([*cells, "; ".join(row.notes)])
    return table(heads, lines)


def markdown(
    rows: Sequence[Row],
    workers: Sequence[Row],
    workloads: Mapping[str, str],
    routers: Mapping[str, str],
    facts: Mapping[str, str],
) -> str:
    """Return the whole report. workloads, routers: titles by name. facts: machine, versions and the like."""
    parts = ["# The data plane, measured", "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    if rows:
        parts += ["![CPU per request, as a ratio to prefix_router](dataplane.svg)", HOW]
    for name in dict.fromkeys(row.workload for row in rows):
        of_this = [row for row in rows if row.workload == name]
        parts += [f"## {workloads[name]}", workload_table(of_this, routers)]
    if workers:
        parts += ["## Two workers against one", workers_text(workers, workloads)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def workers_text(rows: Sequence[Row], workloads: Mapping[str, str]) -> str:
    """Return what a second worker brings; `rows` have `workers-1` for their reference."""
    heads = [
        "load",
        "workers",
        "requests/s",
        "to one",
        "CPU µs",
        "cores busy",
        "on free cores",
        "errors",
        "notes",
    ]
    lines = []
    for row in rows:
        count = int(row.router.rpartition("-")[2])
        free = count / row.cpu_ratio if count > 1 and row.cpu_ratio else None
        cells = [workloads[row.workload], str(count), _number(row.rate), _ratio(row.rate_ratio)]
        cells += [_number(row.cpu_us), _share(row.load_core_busy), _ratio(free), str(row.errors)]
        lines.append([*cells, "; ".join(row.notes)])
    text = table(heads, lines)
    text += (
        "\n\n*on free cores*: what the CPU time per request allows when each worker has a core to itself; "
        "calculated, not measured."
    )
    if any((row.load_core_busy or 0) > BUSY for row in rows if row.router != "workers-1"):
        text += (
            "\n\nWith two workers the cores of the load generator and the backend were fully used (on two "
            "cores they share them with the workers): the measured ratio is a lower bound."
        )
    return text
