from __future__ import annotations

from typing import Any

from conformance.compare import comparison


def report(router: str, **verdicts: str) -> dict[str, Any]:
    cases = [
        {
            "id": name,
            "priority": "P0",
            "expectation": f"{name} | holds",
            "verdict": verdict,
            "evidence": f"saw <{name}>",
        }
        for name, verdict in verdicts.items()
    ]
    return {"router": router, "version": "1.0", "cases": cases}


def test_each_router_has_a_column_and_a_count() -> None:
    text = comparison(
        [
            report("ours", A1="pass", A2="not applicable", A3="fail"),
            report("theirs", A1="fail", A2="error"),
        ]
    )
    assert "| ours | 1.0 | 1 | 1 | 1 |" in text
    assert "| theirs | 1.0 | 0 | 2 | 0 |" in text
    assert "| A1 | P0 | A1 \\| holds | pass | **fail** |" in text
    assert "| A2 | P0 | A2 \\| holds | n/a | **error** |" in text
    assert "| A3 | P0 | A3 \\| holds | **fail** | – |" in text
    assert "- **A2** not applicable: saw &lt;A2>" in text


def test_a_router_without_a_flaw_is_said_to_have_none() -> None:
    assert "Every case passed." in comparison([report("ours", A1="pass")])
