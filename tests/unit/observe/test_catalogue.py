from __future__ import annotations

import re
from pathlib import Path

from prefix_router.observe.catalogue import CATALOGUE, PREFIX, Kind

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def documented() -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of each row of the document's table."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", DOCUMENT.read_text(), re.MULTILINE)
    return [(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows]


def test_the_document_lists_every_metric_with_its_type_and_labels_and_no_other() -> None:
    assert documented() == [(metric.name, metric.kind.value, metric.labels) for metric in CATALOGUE]


def test_the_document_uses_no_name_that_does_not_exist() -> None:
    known = {PREFIX + metric.name for metric in CATALOGUE}
    used = set(re.findall(rf"\b{PREFIX}\w+", DOCUMENT.read_text())) - {PREFIX}
    assert used
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in used} <= known


def test_names_are_unique_and_say_what_they_count() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        if metric.kind in (Kind.HISTOGRAM, Kind.SUMMARY):
            assert metric.name.endswith("_seconds"), metric.name
