"""Tables of the report that show sharing: shades for the two-axis table, small bars for the lengths."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from prefix_router.analyze.sharing import COLUMNS, ROWS
from prefix_router.analyze.text import cell_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefix_router.analyze.sharing import Sharing
    from prefix_router.fleetsim.command.table import Row

_DARKEST = 45
"""Percent of the accent colour behind a cell with everything in it: text stays readable on it."""

STYLE = """
.heat td { text-align: center; background: color-mix(in srgb, var(--accent) var(--heat), transparent); }
.heat th { text-align: center; }
.heat th[scope=row], .heat tr:first-child th:first-child, .meter th:first-child { text-align: left; }
.heat td small, .meter small { color: var(--soft); }
.meter td > span { display: inline-block; width: 64px; text-align: right; }
.bar { display: inline-block; width: 110px; height: 9px; border-radius: 3px; background: var(--track); }
.bar i { display: block; height: 100%; border-radius: 3px; background: var(--accent); }
.bar { margin-left: 10px; vertical-align: 0; }
table.narrow { width: auto; min-width: 55%; }
"""
"""What these tables add to the style sheet."""


def shared_beginnings(sharing: Sharing) -> str:
    """Rows: the longest beginning shared with another request. Columns: how many requests have it."""
    parts = [
        '<div class="scroll"><table class="heat">',
        '<caption class="hidden">Requests by the longest beginning they share, and with how many</caption>',
        '<thead><tr><th scope="col" rowspan="2">tokens shared</th>',
        f'<th scope="colgroup" colspan="{len(COLUMNS)}">requests that have this beginning</th></tr><tr>',
        *(f'<th scope="col">{escape(name)}</th>' for _, name in COLUMNS),
        "</tr></thead><tbody>",
    ]
    for (_, name), cells in zip(ROWS, sharing.cells, strict=True):
        parts.append(f'<tr><th scope="row">{escape(name)}</th>')
        for cell in cells:
            requests, tokens = cell.requests / sharing.requests, cell.tokens / sharing.tokens
            heat = f"{_DARKEST * requests**0.5:.0f}%"
            text = f"{escape(cell_text(requests))}<br><small>{escape(cell_text(tokens))} of tokens</small>"
            parts.append(f'<td style="--heat: {heat}">{text if cell.requests else "·"}</td>')
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    return "\n".join(parts)


def beginnings_by_length(sharing: Sharing) -> str:
    """For each length: how many requests are as long, and how their beginnings spread."""
    parts = [
        '<div class="scroll"><table class="meter">',
        '<caption class="hidden">Beginnings by length</caption><thead><tr>',
        '<th scope="col">first N tokens</th><th scope="col">requests as long</th>',
        '<th scope="col">different beginnings</th><th scope="col">beginning recurs</th>',
        '<th scope="col">with the most frequent one</th></tr></thead><tbody>',
    ]
    for length in sharing.lengths:
        if not length.requests:
            continue
        shares = [count / sharing.requests for count in (length.requests, length.recurring, length.largest)]
        as_long, recurring, largest = map(_metered, shares)
        parts.append(
            f'<tr><th scope="row">{length.tokens:,}</th><td>{as_long}</td><td>{length.distinct:,}</td>'
            f"<td>{recurring}</td><td>{largest}</td></tr>"
        )
    parts.append("</tbody></table></div>")
    return "\n".join(parts)


def thresholds(rows: Mapping[int, Row], chosen: int) -> str:
    """What each candidate for the concurrency threshold gave."""
    parts = [
        '<div class="scroll"><table class="narrow"><caption class="hidden">Concurrency thresholds</caption>',
        '<thead><tr><th scope="col">threshold</th><th scope="col">hits</th><th scope="col">TTFT P50</th>',
        '<th scope="col">P99 ms</th><th scope="col">overflow</th></tr></thead><tbody>',
    ]
    for threshold, row in rows.items():
        times = (row["ttft_ms"][percentile] for percentile in ("p50", "p99"))
        values = [
            f"{row['hit_rate']:.1%}",
            *("-" if time is None else f"{time:,.0f}" for time in times),
            f"{row['overflow_rate']:.1%}",
        ]
        kind = ' class="best"' if threshold == chosen else ""
        cells = "".join(f"<td{kind}>{value}</td>" for value in values)
        parts.append(f'<tr><th scope="row">{threshold}</th>{cells}</tr>')
    parts.append("</tbody></table></div>")
    return "\n".join(parts)


def _metered(share: float) -> str:
    bar = f'<span class="bar" aria-hidden="true"><i style="width: {share:.1%}"></i></span>'
    return f"<span>{share:.1%}</span>{bar}"
