"""Values of several strategies at one load, as SVG text: a bar and a number for each."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from prefix_router.fleetsim.report.plot import SERIES, WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROW = 34
_BAR = 11
_NUMBER = 62


def bars(title: str, values: Mapping[str, float | None], most: float, label: Callable[[float], str]) -> str:
    """An SVG element. most: the value of a bar across the whole width; label: how a value is written."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {_ROW * len(values) + 6}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for number, (strategy, value) in enumerate(values.items()):
        y = _ROW * number + 4
        written = "-" if value is None else label(value)
        width = 0.0 if value is None or not most else round((WIDTH - _NUMBER) * min(value / most, 1.0), 1)
        parts += [
            f'<g class="s{number % SERIES}">',
            f"<title>{escape(strategy)}: {escape(written)}</title>",
            f'<text class="name" x="0" y="{y + 10}">{escape(strategy)}</text>',
            f'<rect class="track" x="0" y="{y + 15}" width="{WIDTH - _NUMBER}" height="{_BAR}" rx="3"/>',
            f'<rect x="0" y="{y + 15}" width="{max(width, 1.5)}" height="{_BAR}" rx="3"/>',
            f'<text class="value" x="{WIDTH}" y="{y + 25}">{escape(written)}</text>',
            "</g>",
        ]
    parts.append("</svg>")
    return "\n".join(parts)
