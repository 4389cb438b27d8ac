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


def file_name(program: str, workers: int) -> str:
    """Return the name of a program's report: one process and several have one each."""
    return program if workers == 1 else f"{program}_{workers}_workers"


def with_workers(workers: int) -> str:
    """Return what to add to a title."""
    return "" if workers == 1 else f", {workers} workers"


def processes(workers: int) -> str:
    """Return what the router consists of."""
    return "One router process" if workers == 1 else f"A router with {workers} workers"


def see_also(program: str, workers: int) -> str:
    """Return where the report on the other number of processes is."""
    other = file_name(program, 2 if workers == 1 else 1) + ".md"
    return f"With {'two workers' if workers == 1 else 'one process'}: [{other}]({other})."


def write(directory: Path, name: str, markdown: str, document: Mapping[str, Any]) -> None:
    """Write `name.md` and `name.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.md").write_text(markdown.rstrip() + "\n")
    (directory / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
