"""The analysis as one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefix_router import __version__
from prefix_router.analyze.contenders import LOAD_ALONE
from prefix_router.analyze.notes import load_notes, method_notes
from prefix_router.analyze.sharing import COLUMNS, ROWS

if TYPE_CHECKING:
    from prefix_router.analyze.sharing import Sharing
    from prefix_router.analyze.study import Analysis

FORMAT = 1
"""Of the document; it changes when something that was there is gone or means something else."""


def as_document(analysis: Analysis) -> dict[str, Any]:
    """Plain values; shares are fractions, and null is what is not known."""
    question, contender = analysis.question, analysis.length.contender
    return {
        "format": FORMAT,
        "version": __version__,
        "verdict": {
            "expectation": analysis.verdict.expectation.value,
            "headline": analysis.verdict.headline,
            "sentence": analysis.verdict.sentence,
            "remarks": list(analysis.verdict.remarks),
            "gained_hit_rate": round(analysis.verdict.gained, 4),
        },
        "recommendation": {
            "strategy": LOAD_ALONE.strategy if analysis.by_load_alone else contender.strategy,
            "prefix_tokens": contender.prefix_tokens,
            "depth": "auto" if contender.depth_auto else None,
            "prefix_why": analysis.length.why,
            "balanced": analysis.length.met,
            "concurrency_threshold": analysis.threshold.threshold,
            "concurrency_threshold_why": analysis.threshold.why,
        },
        "input": {
            "files": list(question.files),
            "lines": analysis.reading.lines,
            "requests": analysis.sharing.requests,
            "sample": analysis.reading.sample,
            "unusable": {
                cause: {"lines": unusable.count, "first": unusable.first}
                for cause, unusable in analysis.reading.unusable.items()
            },
        },
        "sharing": _sharing(analysis.sharing),
        "measured": {"hit_rate": analysis.measured.hit_rate, "ttft_ms": analysis.measured.ttft_ms()},
        "simulation": {
            "replicas": question.replicas,
            "profile": question.profile,
            "requests": len(analysis.traffic.requests),
            "requests_left_out": analysis.traffic.left_out,
            "recorded_requests_per_second": analysis.recorded_rate,
            "capacity_requests_per_second": analysis.facts.capacity,
            "ideal_hit_rate": analysis.facts.ideal_hit_rate,
            "loads": list(analysis.loads),
            "rows": list(analysis.rows),
            "thresholds": {str(threshold): row for threshold, row in analysis.threshold.rows.items()},
        },
        "notes": [*load_notes(analysis), *method_notes(analysis)],
    }


def _sharing(sharing: Sharing) -> dict[str, Any]:
    return {
        "prompt_tokens": sharing.tokens,
        "recurring_share": sharing.recurring_share,
        "windows": sharing.windows,
        "rows": [name for _, name in ROWS],
        "columns": [name for _, name in COLUMNS],
        "requests": [[cell.requests for cell in cells] for cells in sharing.cells],
        "tokens": [[cell.tokens for cell in cells] for cells in sharing.cells],
        "lengths": [
            {
                "tokens": length.tokens,
                "requests": length.requests,
                "distinct": length.distinct,
                "recurring": length.recurring,
                "largest": length.largest,
            }
            for length in sharing.lengths
        ],
    }
