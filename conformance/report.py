"""Results as text, JSON and Markdown. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from conformance.model import CaseResult, Verdict

_WIDTH = 110


def summary(results: Sequence[CaseResult]) -> str:
    """Return the counts in one line."""
    counts = [
        f"{sum(result.verdict is verdict for result in results)} {verdict.value}" for verdict in Verdict
    ]
    variants = sum(len(result.variants) for result in results)
    return f"{len(results)} cases ({variants} variants): {', '.join(counts)}"


def as_line(result: CaseResult) -> str:
    """Return one result as a line, its evidence below it."""
    case = result.case
    head = f"{case.id:<4} {case.priority.value}  {result.verdict.value:<14} {case.title}"
    evidence = textwrap.wrap(
        " ".join(result.evidence.split()), _WIDTH - 10, initial_indent=" " * 10, subsequent_indent=" " * 10
    )
    return "\n".join([f"{head} ({result.seconds:.1f} s)", *evidence])


def as_document(results: Sequence[CaseResult], router: str, version: str) -> dict[str, Any]:
    """Return the results as plain values, for JSON."""
    return {
        "router": router,
        "version": version,
        "summary": {
            verdict.value: sum(result.verdict is verdict for result in results) for verdict in Verdict
        },
        "cases": [
            {
                "id": result.case.id,
                "priority": result.case.priority.value,
                "title": result.case.title,
                "expectation": result.case.expectation,
                "profile": result.case.profile.label,
                "verdict": result.verdict.value,
                "evidence": result.evidence,
                "variants": [
                    {
                        "variant": variant.variant,
                        "verdict": variant.verdict.value,
                        "evidence": variant.evidence,
                        "seconds": round(variant.seconds, 3),
                    }
                    for variant in result.variants
                ],
            }
            for result in results
        ],
    }


def as_json(results: Sequence[CaseResult], router: str, version: str) -> str:
    """Return the JSON report."""
    return json.dumps(as_document(results, router, version), indent=2, ensure_ascii=False) + "\n"


def as_markdown(results: Sequence[CaseResult], router: str, version: str) -> str:
    """Return the Markdown report: one table row for each case."""
    lines = [f"# {router} {version}", "", f"{summary(results)}.", ""]
    lines += ["| case | | what must hold | result | evidence |", "|---|---|---|---|---|"]
    for result in results:
        case = result.case
        cells = (case.id, case.priority.value, case.expectation, result.verdict.value, result.evidence)
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
