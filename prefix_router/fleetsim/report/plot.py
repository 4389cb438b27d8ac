"""Plots as SVG text: one value per strategy over the load, as lines with marks.

Colours come from the page (classes `s0`, `s1`, ...), so that they suit light and dark. A reader who does not
see them has the shape of the marks, the title of every mark, and the table next to the plot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WIDTH = 320
HEIGHT = 210
SERIES = 10
"""Strategies that look different from each other; more begin again."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 34
_MOST_TICKS = 7
_MARKS = ("circle", "square", "diamond", "triangle", "cross")


@dataclass(frozen=True, slots=True)
class Axis:
    """How values become heights. ticks: the values with a line and a label, of which the ends are two."""

    ticks: Sequence[float]
    label: Callable[[float], str]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """0.0 at the lowest tick, 1.0 at the highest."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def milliseconds_axis(values: Sequence[float]) -> Axis:
    """A logarithmic axis around times in milliseconds, all above 0."""
    lowest = math.floor(math.log10(min(values)))
    highest = math.ceil(math.log10(max(values))) + 1
    for digits in ((1, 2, 5), (1,)):
        ticks = [digit * 10.0**power for power in range(lowest, highest + 1) for digit in digits]
        low = max(tick for tick in ticks if tick <= min(values))
        high = min(tick for tick in ticks if tick >= max(values) and tick > low)
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) <= _MOST_TICKS:
            break
    return Axis(shown, format_milliseconds, logarithmic=True)


def share_axis() -> Axis:
    """From 0% to 100%."""
    return Axis((0.0, 0.25, 0.5, 0.75, 1.0), lambda value: f"{value:.0%}")


def format_milliseconds(value: float) -> str:
    """In the unit that one would say it in."""
    return f"{value / 1e3:,.3g} s" if value >= 1e3 else f"{value:.3g} ms"


def plot(
    title: str,
    loads: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    axis: Axis,
    limit: tuple[str, float] | None = None,
) -> str:
    """An SVG element.

    series: for each strategy a value at each load, or None where there is none. limit: the name and value of
    a dashed line across the plot.
    """
    places = {load: _x(number, len(loads)) for number, load in enumerate(sorted(loads))}
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in axis.ticks:
        y = _y(axis.share(tick))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5}">{escape(axis.label(tick))}</text>')
    for load, x in places.items():
        parts.append(f'<text class="load" x="{x}" y="{HEIGHT - _BOTTOM + 16}">{load:g}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text class="load" x="{middle}" y="{HEIGHT - 3}">load, as share of capacity</text>')
    if limit is not None:
        name, value = limit
        y = _y(axis.share(value))
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="limit" x="{WIDTH - _RIGHT}" y="{y - 4}">{escape(name)}</text>')
    for number, (strategy, values) in enumerate(series.items()):
        points = [
            (load, places[load], value, _y(axis.share(value)))
            for load, value in sorted(zip(loads, values, strict=True))
            if value is not None
        ]
        parts.append(f'<g class="s{number % SERIES}">')
        if len(points) > 1:
            way = " ".join(f"{x},{y}" for _, x, _, y in points)
            parts.append(f'<polyline points="{way}"/>')
        for load, x, value, y in points:
            name = escape(f"{strategy} at load {load:g}: {axis.label(value)}")
            parts.append(mark(number, x, y, name))
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts)


def mark(number: int, x: float, y: float, name: str) -> str:
    """The mark of a strategy, by its number; `name`, which must be escaped, is what a pointer shows."""
    shape = _MARKS[number % len(_MARKS)]
    title = f"<title>{name}</title>" if name else ""
    if shape == "circle":
        return f'<circle cx="{x}" cy="{y}" r="4">{title}</circle>'
    offsets = {
        "square": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
        "triangle": ((0, -5), (4.6, 3.6), (-4.6, 3.6)),
        "cross": (
            *((-1.4, -4.5), (1.4, -4.5), (1.4, -1.4), (4.5, -1.4), (4.5, 1.4), (1.4, 1.4)),
            *((1.4, 4.5), (-1.4, 4.5), (-1.4, 1.4), (-4.5, 1.4), (-4.5, -1.4), (-1.4, -1.4)),
        ),
    }[shape]
    corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in offsets)
    return f'<polygon points="{corners}">{title}</polygon>'


def _x(number: int, count: int) -> float:
    """Loads are spread evenly: they are few, and chosen."""
    inner = WIDTH - _LEFT - _RIGHT
    return round(_LEFT + inner * (number + 0.5) / count, 1)


def _y(share: float) -> float:
    inner = HEIGHT - _TOP - _BOTTOM
    return round(_TOP + inner * (1 - min(max(share, 0.0), 1.0)), 1)
