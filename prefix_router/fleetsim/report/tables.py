"""The tables of a report: strategies down, loads across."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from prefix_router.fleetsim.report.findings import best
from prefix_router.fleetsim.report.plot import SERIES, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = dict[str, Any]

_LONG_MS = 10_000


class Column(NamedTuple):
    """A column under each load. marked: whether the best value in it is."""

    title: str
    measure: str
    percentile: str | None
    write: Callable[[float], str]
    marked: bool = True


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _thousands(value: float) -> str:
    return f"{value:,.0f}"


def _time(value: float) -> str:
    """Milliseconds, and seconds where those would be many digits."""
    return f"{value:,.0f}" if value < _LONG_MS else f"{value / 1e3:,.0f} s"


RESULTS = (
    Column("hits", "hit_rate", None, _percent),
    Column("P50", "ttft_ms", "p50", _time),
    Column("P90", "ttft_ms", "p90", _time),
    Column("P99", "ttft_ms", "p99", _time),
)
"""Cache hits and times to first token in milliseconds."""

DETAILS = (
    Column("E2E P50", "e2e_ms", "p50", _time),
    Column("P99", "e2e_ms", "p99", _time),
    Column("tokens/s", "throughput_tokens_per_second", None, _thousands, marked=False),
    Column("busiest", "share_max", None, _percent, marked=False),
    Column("overflow", "overflow_rate", None, _percent, marked=False),
    Column("failed", "failed", None, _thousands, marked=False),
)
"""Whole answers, and how the work was spread."""


def table(caption: str, rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """An HTML table of the rows of one workload; those of each load in the same order of strategies."""
    loads = list(dict.fromkeys(row["load"] for row in rows))
    groups = [[row for row in rows if row["load"] == load] for load in loads]
    parts = [
        '<div class="scroll"><table>',
        f'<caption class="hidden">{escape(caption)}</caption>',
        '<thead><tr><th scope="col" rowspan="2"><span class="hidden">strategy</span></th>',
    ]
    for group in groups:
        rate = group[0]["requests_per_second"]
        parts.append(
            f'<th scope="colgroup" class="first" colspan="{len(columns)}">'
            f"load {group[0]['load']:g}<br><small>{rate:,.1f} requests/s</small></th>"
        )
    parts.append("</tr><tr>")
    for _ in groups:
        parts += [
            f'<th scope="col"{_first(place)}>{column.title}</th>' for place, column in enumerate(columns)
        ]
    parts.append("</tr></thead><tbody>")
    winners = [[best(group, column.measure, column.percentile) for column in columns] for group in groups]
    for number, row in enumerate(groups[0]):
        name = escape(row["strategy"])
        parts.append(f'<tr><th scope="row">{key(number)}{name}</th>')
        for group, first in zip(groups, winners, strict=True):
            for place, column in enumerate(columns):
                is_best = column.marked and row["strategy"] in first[place]
                parts.append(_cell(group[number], column, place, is_best=is_best))
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    return "\n".join(parts)


def key(number: int) -> str:
    """The mark of a strategy in the plots."""
    shape = mark(number, 6, 6, "")
    return f'<svg class="key s{number % SERIES}" viewBox="0 0 12 12" aria-hidden="true">{shape}</svg>'


def _cell(row: Row, column: Column, place: int, *, is_best: bool) -> str:
    value = row[column.measure] if column.percentile is None else row[column.measure][column.percentile]
    text = "-" if value is None else column.write(value)
    if is_best:
        kind = "best first" if place == 0 else "best"
        return f'<td class="{kind}">{text}<span class="hidden"> (best)</span></td>'
    return f"<td{_first(place)}>{text}</td>"


def _first(place: int) -> str:
    return ' class="first"' if place == 0 else ""
