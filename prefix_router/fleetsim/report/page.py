"""The report as one HTML page, which fetches nothing and runs no script."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from prefix_router import __version__
from prefix_router.fleetsim.report.bars import bars
from prefix_router.fleetsim.report.caveats import caveats
from prefix_router.fleetsim.report.findings import Findings, find
from prefix_router.fleetsim.report.plot import format_milliseconds, milliseconds_axis, plot, share_axis
from prefix_router.fleetsim.report.style import STYLE
from prefix_router.fleetsim.report.tables import DETAILS, RESULTS, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.command.comparison import Comparison
    from prefix_router.fleetsim.command.scenario import Facts

Row = dict[str, Any]

_PERCENTILES = ("p50", "p90", "p99")


def as_page(comparison: Comparison, workloads: Sequence[Facts], rows: Sequence[Row]) -> str:
    """The page. rows: of the workloads in their order, those of one workload and load together."""
    findings = find(rows, comparison.contenders[0].label)
    size = len(rows) // len(workloads)
    sections = [
        workload_section(facts, rows[number * size : (number + 1) * size])
        for number, facts in enumerate(workloads)
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Routing strategies compared</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>",
            _headline(comparison, findings),
            *sections,
            _method(comparison, workloads),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _headline(comparison: Comparison, findings: Findings) -> str:
    leader, baseline = escape(findings.leader), escape(findings.baseline)
    firsts = f" in {findings.firsts.get(findings.leader, 0)} of {findings.cells} cases"
    parts = [
        '<p class="over">Routing strategies on a simulated vLLM fleet</p>',
        f"<h1>{leader} brings the first token soonest{firsts if findings.cells > 1 else ''}</h1>",
        f'<p class="lead">{escape(_lead(comparison, findings))}</p>',
    ]
    if findings.changes:
        before, after = findings.hit_rates
        parts += [
            '<div class="tiles">',
            _tile(f"{before:.0%} → {after:.0%}", "of prompt tokens found in a cache"),
            *(
                _tile(_change(change), f"time to first token, {percentile.upper()}")
                for percentile, change in findings.changes.items()
            ),
            "</div>",
            f'<p class="soft note">{leader} against {baseline}, the median of the cases below.</p>',
        ]
    return "\n".join(parts)


def _lead(comparison: Comparison, findings: Findings) -> str:
    routers = f"{comparison.routers} router{'s' if comparison.routers > 1 else ''}"
    others = [f"{name} in {count}" for name, count in findings.firsts.items() if name != findings.leader]
    ahead = f" Ahead in the others: {', '.join(others)}." if others else ""
    return (
        "Measured by the P90 time to first token, for each workload and load, with "
        f"{comparison.replicas} replicas of {comparison.profile} behind {routers}.{ahead}"
    )


def _tile(number: str, what: str) -> str:
    return f'<div class="card"><b>{number}</b><span class="soft">{what}</span></div>'


def _change(change: float) -> str:
    return f"{change:+.0%}".replace("-", "−")


def workload_section(facts: Facts, rows: Sequence[Row]) -> str:
    """The section of one workload: a table, plots, details. rows: those of each load together."""
    about = (
        f"{facts.requests:,} requests, on average {facts.mean_prompt_tokens:,.0f} prompt and "
        f"{facts.mean_output_tokens:,.0f} output tokens. With ideal caches {facts.ideal_hit_rate:.1%} of the "
        f"prompt tokens hit, and the fleet could just take {facts.capacity:,.1f} requests a second: that is "
        "load 1. Times to first token are milliseconds; the best of a column is marked."
    )
    words = (
        "E2E: milliseconds to the last token. busiest: share of the requests that the busiest replica got. "
        "overflow: share that went elsewhere because home, or who holds the prompt, was busy."
    )
    return "\n".join(
        [
            f"<section>\n<h2>{escape(facts.label)}</h2>",
            f'<p class="soft">{about}</p>',
            table(f"{facts.label}: hit rate and time to first token", rows, RESULTS),
            _plots(facts, rows),
            "<details><summary>Whole answers, throughput and spread</summary>",
            table(f"{facts.label}: end to end times, throughput and spread", rows, DETAILS),
            f'<p class="soft">{words}</p></details>\n</section>',
        ]
    )


def _plots(facts: Facts, rows: Sequence[Row]) -> str:
    loads = list(dict.fromkeys(row["load"] for row in rows))
    figures = []
    for percentile in _PERCENTILES:
        times = _series(rows, "ttft_ms", percentile)
        present = [time for values in times.values() for time in values if time]
        title = f"Time to first token, {percentile.upper()}"
        if not present:
            continue
        if len(loads) == 1:
            only = {strategy: values[0] for strategy, values in times.items()}
            svg = bars(f"{facts.label}: {title}", only, max(present), format_milliseconds)
        else:
            svg = plot(f"{facts.label}: {title}", loads, times, milliseconds_axis(present))
        figures.append(_figure(title, svg))
    rates = _series(rows, "hit_rate", None)
    if len(loads) == 1:
        only = {strategy: values[0] for strategy, values in rates.items()}
        svg = bars(f"{facts.label}: cache hit rate", only, 1.0, lambda value: f"{value:.1%}")
    else:
        limit = ("ideal", facts.ideal_hit_rate)
        svg = plot(f"{facts.label}: cache hit rate", loads, rates, share_axis(), limit)
    figures.append(_figure("Cache hit rate", svg))
    return '<div class="plots">\n' + "\n".join(figures) + "\n</div>"


def _series(rows: Sequence[Row], measure: str, percentile: str | None) -> dict[str, list[float | None]]:
    """The values of each strategy, in the order of the loads."""
    series: dict[str, list[float | None]] = {}
    for row in rows:
        value = row[measure] if percentile is None else row[measure][percentile]
        series.setdefault(row["strategy"], []).append(value)
    return series


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def _method(comparison: Comparison, workloads: Sequence[Facts]) -> str:
    return "\n".join(
        [
            "<section>\n<h2>How this was made</h2>",
            f"<pre>{escape(comparison.command())}</pre>",
            f'<p class="soft">prefix_router {__version__}</p>',
            "<h3>What to keep in mind</h3>\n<ul>",
            *(f"<li>{escape(caveat)}</li>" for caveat in caveats(comparison, workloads)),
            "</ul>\n</section>",
        ]
    )
