"""Writes results as JSON and as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def kinds(counts: Mapping[str, int]) -> str:
    """Return counts by kind as text: `good 120, broken 2`."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "–"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join("–" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write(directory: Path, name: str, markdown: str, document: Mapping[str, Any]) -> None:
    """Write `name.md` and `name.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.md").write_text(markdown.rstrip() + "\n")
    (directory / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
