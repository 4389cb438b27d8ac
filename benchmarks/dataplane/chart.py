"""Draws bars as SVG: for each load, the CPU time per request of every router as a ratio to ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.dataplane.routers import DIRECT, OWN
from benchmarks.dataplane.summary import Row

_WIDTH, _LABELS, _BAR, _GAP, _HEAD = 860, 210, 16, 4, 34
_AT_MOST = 5.0
"""Longer bars are cut, and end in an open edge; the figure beside them says how long they are."""
_OURS, _THEIRS, _TEXT, _LINE = "#1f6f8b", "#b8bec6", "#24292f", "#8c959f"


def svg(rows: Sequence[Row], workloads: Mapping[str, str], routers: Mapping[str, str]) -> str:
    """Return the drawing. workloads, routers: titles by name."""
    drawn: list[str] = []
    y = 44
    for name in dict.fromkeys(row.workload for row in rows):
        of_this = [row for row in rows if row.workload == name and row.router != DIRECT]
        if not any(row.cpu_ratio for row in of_this):
            continue
        drawn.append(_words(0, y + 14, workloads[name], weight="bold"))
        y += 24
        for row in of_this:
            drawn += _bar(y, row, routers.get(row.router, row.router))
            y += _BAR + _GAP
        y += _HEAD - 24
    title = _words(
        0, 16, "CPU time per request or stream, as a ratio to prefix_router", weight="bold", size=15
    )
    below = _words(0, 34, "shorter is cheaper; µs per request in brackets", fill=_LINE)
    one = _LABELS + _scale(1.0)
    line = (
        f'<line x1="{one:.1f}" y1="44" x2="{one:.1f}" y2="{y - 8}" stroke="{_LINE}" stroke-dasharray="3 3"/>'
    )
    body = "\n".join([title, below, line, *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -6 {_WIDTH + 20} {y + 6}" '
        f'width="{_WIDTH + 20}" font-family="sans-serif">\n'
        f'<rect x="-10" y="-6" width="{_WIDTH + 20}" height="{y + 6}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _scale(ratio: float) -> float:
    return min(ratio, _AT_MOST) / _AT_MOST * (_WIDTH - _LABELS - 130)


def _bar(y: int, row: Row, title: str) -> list[str]:
    label = _words(_LABELS - 8, y + 12, title, anchor="end")
    if row.cpu_ratio is None:
        return [label, _words(_LABELS, y + 12, "no result", fill=_LINE)]
    length = _scale(row.cpu_ratio)
    fill = _OURS if row.router == OWN else _THEIRS
    bar = f'<rect x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{fill}"/>'
    cut = " ›" if row.cpu_ratio > _AT_MOST else ""
    ratio = f"{row.cpu_ratio:.2f}" if row.cpu_ratio < 10 else f"{row.cpu_ratio:,.0f}"
    figure = f"{cut} {ratio} × ({row.cpu_us:,.0f} µs)"
    return [label, bar, _words(_LABELS + length + 4, y + 12, figure)]


def _words(
    x: float,
    y: int,
    text: str,
    *,
    weight: str = "normal",
    size: int = 12,
    anchor: str = "start",
    fill: str = _TEXT,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(text)}</text>'
    )
