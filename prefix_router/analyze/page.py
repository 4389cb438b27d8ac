"""The analysis as one HTML page, which fetches nothing and runs no script. Light and dark, screen and
paper.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from prefix_router import __version__
from prefix_router.analyze.heat import STYLE as OWN_STYLE
from prefix_router.analyze.heat import beginnings_by_length, shared_beginnings, thresholds
from prefix_router.analyze.notes import input_notes, load_notes, method_notes
from prefix_router.analyze.text import measured_line, setting_lines
from prefix_router.fleetsim.report.page import workload_section
from prefix_router.fleetsim.report.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefix_router.analyze.study import Analysis

_ABOUT_LENGTHS = """
Shares of all requests. A key as long as a beginning that most requests have sends most of them to one
replica; one that is longer than what they share finds nothing.
"""


def as_page(analysis: Analysis) -> str:
    """The page."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>What prefix-aware routing would do for this traffic</title>",
            f"<style>{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n<main>",
            _headline(analysis),
            _settings(analysis),
            _sharing(analysis),
            _routing(analysis),
            _method(analysis),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _headline(analysis: Analysis) -> str:
    verdict = analysis.verdict
    return "\n".join(
        [
            '<p class="over">What prefix-aware routing would do for this traffic</p>',
            f"<h1>{escape(verdict.headline)}</h1>",
            f'<p class="lead">{escape(verdict.sentence)}</p>',
            _tiles(analysis),
            *(f'<p class="soft note">{escape(remark)}</p>' for remark in verdict.remarks),
        ]
    )


def _tiles(analysis: Analysis) -> str:
    before, after = analysis.baseline, analysis.recommended
    tiles = [
        (f"{before['hit_rate']:.0%} → {after['hit_rate']:.0%}", "of prompt tokens found in a cache"),
        (f"{analysis.sharing.recurring_share:.0%}", "would be found by caches without limits"),
    ]
    for percentile in ("p50", "p99"):
        old, new = before["ttft_ms"][percentile], after["ttft_ms"][percentile]
        if old and new:
            change = f"{new / old - 1:+.0%}".replace("-", "−")
            tiles.append((change, f"time to first token, {percentile.upper()}: {old:,.0f} → {new:,.0f} ms"))
    cards = "".join(
        f'<div class="card"><b>{number}</b><span class="soft">{what}</span></div>' for number, what in tiles
    )
    names = f"{after['strategy']} against {before['strategy']}, simulated at load {analysis.loads[0]:.2g}."
    return f'<div class="tiles">{cards}</div>\n<p class="soft note">{escape(names)}</p>'


def _settings(analysis: Analysis) -> str:
    return "\n".join(
        [
            "<section>\n<h2>What to set</h2>",
            f"<pre>{escape(chr(10).join(setting_lines(analysis)))}</pre>",
            _list(analysis.reasons()),
            "<details><summary>All thresholds that were tried</summary>",
            thresholds(analysis.threshold.rows, analysis.threshold.threshold),
            "</details>\n</section>",
        ]
    )


def _sharing(analysis: Analysis) -> str:
    sharing = analysis.sharing
    about = (
        f"{sharing.requests:,} requests with {sharing.tokens:,} prompt tokens, of which "
        f"{sharing.recurring_share:.1%} recur: an earlier request had them in the same place. Each is in "
        "the row of the longest beginning it shares with any other, and in the column of how many have it."
    )
    return "\n".join(
        [
            "<section>\n<h2>How requests share beginnings</h2>",
            f'<p class="soft">{about}</p>',
            shared_beginnings(sharing),
            "<h3>Beginnings by length</h3>",
            f'<p class="soft">{_ABOUT_LENGTHS}</p>',
            beginnings_by_length(sharing),
            "</section>",
        ]
    )


def _routing(analysis: Analysis) -> str:
    said = [*load_notes(analysis), *filter(None, [measured_line(analysis)])]
    section = workload_section(replace(analysis.facts, label="What routing would make of it"), analysis.rows)
    return "\n".join([*(f'<p class="note">{escape(text)}</p>' for text in said), section])


def _method(analysis: Analysis) -> str:
    return "\n".join(
        [
            "<section>\n<h2>How this was made</h2>",
            f"<pre>{escape(analysis.question.command())}</pre>",
            f'<p class="soft">prefix_router {__version__}</p>',
            "<h3>What was read</h3>",
            _list(input_notes(analysis)),
            "<h3>What to keep in mind</h3>",
            _list(method_notes(analysis)),
            "</section>",
        ]
    )


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"
