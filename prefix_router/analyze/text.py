"""The analysis as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from prefix_router.analyze.contenders import LOAD_ALONE
from prefix_router.analyze.notes import input_notes, load_notes, method_notes
from prefix_router.analyze.sharing import COLUMNS, ROWS
from prefix_router.fleetsim.command.table import as_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.analyze.study import Analysis

WIDTH = 110


def as_text(analysis: Analysis) -> str:
    """Everything that one would want to know first, at the beginning."""
    parts = [
        _wrapped([f"{analysis.verdict.headline}; {analysis.verdict.sentence}", *analysis.verdict.remarks]),
        _recommendation(analysis),
        _section("What was read", _bullets(input_notes(analysis))),
        _section("How requests share beginnings", _cells(analysis), _lengths(analysis)),
        _section(
            "What routing would make of it",
            _wrapped(load_notes(analysis)),
            _rows(analysis),
            measured_line(analysis),
        ),
        _section("What to keep in mind", _bullets(method_notes(analysis))),
    ]
    return "\n\n".join(parts)


def setting_lines(analysis: Analysis) -> list[str]:
    """The recommendation as it would stand in the configuration file."""
    if analysis.by_load_alone:
        return ["routing:", f"  strategy: {LOAD_ALONE.strategy}"]
    contender = analysis.length.contender
    prefix = "depth: auto" if contender.depth_auto else f"length: {contender.prefix_tokens}, unit: tokens"
    return [
        "routing:",
        f"  strategy: {contender.strategy}",
        f"  prefix: {{{prefix}}}",
        f"  concurrency_threshold: {analysis.threshold.threshold}",
    ]


def cell_text(share: float) -> str:
    """A share of the table of shared beginnings; nothing is a dot, so that what is there stands out."""
    if not share:
        return "·"
    return "<0.1%" if share < 0.001 else f"{share:.1%}"


def measured_line(analysis: Analysis) -> str:
    """What was measured while capturing, empty for nothing."""
    measured = analysis.measured
    said = []
    if measured.hit_rate is not None:
        said.append(f"hit rate {measured.hit_rate:.1%}")
    times = measured.ttft_ms()
    said += [f"TTFT {name.upper()} {value:,.0f} ms" for name, value in times.items() if value is not None]
    return f"Measured while capturing: {', '.join(said)}." if said else ""


def _recommendation(analysis: Analysis) -> str:
    settings = textwrap.indent("\n".join(setting_lines(analysis)), "  ")
    return _section("Set", settings, _bullets(analysis.reasons()))


def _cells(analysis: Analysis) -> str:
    sharing = analysis.sharing
    lines = [
        f"{sharing.recurring_share:.1%} of {sharing.tokens:,} prompt tokens recur.",
        "",
        _row(
            "longest shared beginning", "requests with that beginning: share of requests / of prompt tokens"
        ),
        _row("(tokens)", *(name for _, name in COLUMNS)),
    ]
    for (_, name), cells in zip(ROWS, sharing.cells, strict=True):
        if any(cell.requests for cell in cells):
            lines.append(
                _row(
                    name,
                    *(
                        _cell(cell.requests / sharing.requests, cell.tokens / sharing.tokens)
                        for cell in cells
                    ),
                )
            )
    return "\n".join(lines)


def _cell(requests: float, tokens: float) -> str:
    return f"{cell_text(requests)} / {cell_text(tokens)}" if requests else cell_text(0)


def _lengths(analysis: Analysis) -> str:
    lines = [_line("first N tokens", ["requests", "beginnings", "recur", "largest"], 16)]
    total = analysis.sharing.requests
    for length in analysis.sharing.lengths:
        if length.requests:
            cells = [
                f"{length.requests / total:.1%}",
                f"{length.distinct:,}",
                f"{length.recurring / total:.1%}",
                f"{length.largest / total:.1%}",
            ]
            lines.append(_line(f"{length.tokens:,}", cells, 16))
    lines.append(
        "(shares of all requests: as long as that, whose beginning recurs, with the most frequent one)"
    )
    return "\n".join(lines)


def _rows(analysis: Analysis) -> str:
    return as_table(analysis.facts, analysis.rows)


def _section(title: str, *bodies: str) -> str:
    return "\n\n".join([f"{title}\n{'-' * len(title)}", *filter(None, bodies)])


def _row(name: str, *cells: str) -> str:
    if len(cells) == 1:
        return f"{name:<26}{cells[0]}"
    return f"{name:<26}" + "".join(f"{cell:>17}" for cell in cells)


def _line(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:>{width}}" + "".join(f"{cell:>12}" for cell in cells)


def _wrapped(paragraphs: Iterable[str]) -> str:
    return "\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)


def _bullets(notes: Iterable[str]) -> str:
    return "\n".join(
        textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes
    )
