"""Writes the tables of docs/metrics.md from the catalogue.

    python -m prefix_router.observe.reference docs/metrics.md      (make reference)

What stands between the two markers of the file is replaced, everything else is kept; a file that is up to
date is not touched. Never edit the tables by hand: the catalogue is where a metric is described, and a test
fails when the two differ.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.observe.catalogue import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.observe.catalogue import Group, Metric

BEGIN = "<!-- written by make reference -->"
END = "<!-- end -->"

_HEADER = ("name", "type", "labels", "unit", "meaning", "look here when")


def tables(groups: Iterable[Group] = GROUPS) -> str:
    """Each group as a heading and a table, in Markdown."""
    return "\n\n".join(_table(group) for group in groups)


def updated(document: str) -> str:
    """The document with the tables of now. Raises ValueError when it lacks the markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document must have the line {BEGIN} and after it the line {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Bring the one file that is named up to date. Returns the exit status, 2 for a file that cannot be."""
    try:
        [path] = (Path(argument) for argument in arguments)
        old = path.read_text(encoding="utf-8")
        new = updated(old)
    except (OSError, ValueError) as problem:
        print(
            f"usage: python -m prefix_router.observe.reference docs/metrics.md ({problem})", file=sys.stderr
        )
        return 2
    if new != old:
        path.write_text(new, encoding="utf-8")
    return 0


def _table(group: Group) -> str:
    lines = [f"### {group.title}", "", _row(_HEADER), "|---" * len(_HEADER) + "|"]
    lines += [_row(_cells(metric)) for metric in group.metrics]
    return "\n".join(lines)


def _cells(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    name, kind = f"`{metric.name}`", metric.kind.value
    return (name, kind, labels, metric.unit, metric.meaning, metric.look_when)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
