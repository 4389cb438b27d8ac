"""Two runs side by side, and one run as a table."""

from __future__ import annotations

from benchmarks.micro.history import Measured, Run
from benchmarks.support.report import table

NOTEWORTHY = 0.05
"""A change of instructions from which a comparison flags a benchmark."""

ALLOWED_GROWTH = 0.10
"""Growth of instructions over which a check fails."""

_NOT_MEASURED = Measured(None, None, None)


def results_table(run: Run) -> str:
    """Return a Markdown table of one run."""
    rows = [
        (name, _whole(each.median_ns), _whole(each.best_ns), _whole(each.instructions))
        for name, each in run.results.items()
    ]
    return table(["one operation", "median ns", "best ns", "instructions"], rows)


def comparison_table(before: Run, after: Run) -> str:
    """Return a Markdown table of the benchmarks of both runs; what only one of them has is in it, too."""
    rows = []
    for name in {**before.results, **after.results}:
        old, new = before.results.get(name, _NOT_MEASURED), after.results.get(name, _NOT_MEASURED)
        rows.append(
            (
                name,
                _whole(old.best_ns),
                _whole(new.best_ns),
                _whole(old.instructions),
                _whole(new.instructions),
                _percent(change(old, new)),
                flag(change(old, new)),
            )
        )
    titles = ["one operation", "best ns before", "after", "instructions before", "after", "change", ""]
    return table(titles, rows)


def change(before: Measured, after: Measured) -> float | None:
    """Return the change of instructions as a fraction, None when there is nothing to compare."""
    if not before.instructions or after.instructions is None:
        return None
    return after.instructions / before.instructions - 1


def flag(changed: float | None) -> str:
    """Return the word for a change that is worth a look."""
    if changed is None or abs(changed) <= NOTEWORTHY:
        return ""
    return "MORE" if changed > 0 else "less"


def grown(before: Run, after: Run) -> dict[str, float]:
    """Return the benchmarks whose instructions grew by more than is allowed, with their growth."""
    found = {}
    for name, new in after.results.items():
        changed = change(before.results.get(name, _NOT_MEASURED), new)
        if changed is not None and changed > ALLOWED_GROWTH:
            found[name] = changed
    return found


def described(run: Run) -> str:
    """Return what a run was, in a line."""
    return f"{run.date}, revision {run.revision}, Python {run.python}, {run.cpu}"


def caution(before: Run, after: Run) -> str:
    """Return what makes two runs hard to compare, empty when nothing does."""
    differing = [
        what
        for what, old, new in (
            ("Python", before.python, after.python),
            ("the processor", before.cpu, after.cpu),
        )
        if old != new
    ]
    return f"{' and '.join(differing)} differed: counts differ with it" if differing else ""


def _whole(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"


def _percent(changed: float | None) -> str | None:
    return None if changed is None else f"{changed:+.1%}"
