"""Tables of results."""

from __future__ import annotations

import json

from conformance.cli import exit_status
from conformance.model import Case, CaseResult, Priority, VariantResult, Verdict
from conformance.report import as_json, as_line, as_markdown, summary


async def _run(_: object) -> str:
    raise AssertionError


def result(case_id: str, *variants: tuple[Verdict, str]) -> CaseResult:
    case = Case(case_id, Priority.P0, f"title of {case_id}", "It | holds.", _run)
    return CaseResult(
        case,
        tuple(VariantResult(f"v{at}", verdict, text, 0.5) for at, (verdict, text) in enumerate(variants)),
    )


PASSED = result("A1", (Verdict.PASS, "seen 1"), (Verdict.NOT_APPLICABLE, "no route"))
FAILED = result("B1", (Verdict.PASS, "fine"), (Verdict.FAIL, "12 <lost>"))
SKIPPED = result("C1", (Verdict.NOT_APPLICABLE, "no setting"))
RESULTS = [PASSED, FAILED, SKIPPED]


def test_the_summary_counts_cases_by_verdict() -> None:
    assert summary(RESULTS) == "3 cases (5 variants): 1 pass, 1 fail, 1 not applicable, 0 error"


def test_a_line_holds_id_verdict_and_evidence() -> None:
    text = as_line(FAILED)
    assert text.startswith("B1   P0  fail ")
    assert "[v1] 12 <lost>" in text


def test_json_holds_every_variant() -> None:
    document = json.loads(as_json(RESULTS, "some router", "1.2"))
    assert (document["router"], document["version"]) == ("some router", "1.2")
    assert document["summary"] == {"pass": 1, "fail": 1, "not applicable": 1, "error": 0}
    assert [variant["verdict"] for variant in document["cases"][1]["variants"]] == ["pass", "fail"]


def test_a_markdown_cell_cannot_break_its_table() -> None:
    rows = as_markdown(RESULTS, "some router", "1.2").splitlines()[4:]
    assert len(rows) == 2 + len(RESULTS)
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert "&lt;lost>" in rows[3]


def test_only_failures_and_errors_make_the_exit_status() -> None:
    assert exit_status([PASSED, SKIPPED]) == 0
    assert exit_status(RESULTS) == 1
    assert exit_status([result("D1", (Verdict.ERROR, "broke"))]) == 1
