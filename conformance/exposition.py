"""Reading a router's own metrics (Prometheus text), whatever their names are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from conformance.context import Context
from conformance.launchers.base import fetch
from conformance.model import CaseFailed, NotApplicable
from conformance.wire import BrokenError, ClosedError

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)


async def metrics_text(ctx: Context) -> str:
    """Return the router's metrics. Raises NotApplicable where it has none, CaseFailed when they fail."""
    router = ctx.router
    try:
        if router.admin_port is not None:
            answer = await router.admin("/metrics")
        elif router.metrics_port is not None:
            answer = await fetch("127.0.0.1", router.metrics_port, "/metrics")
        else:
            raise NotApplicable("the suite was not told where the router's metrics are")
    except (OSError, TimeoutError, ClosedError, BrokenError) as error:
        raise CaseFailed(f"the router's metrics do not answer: {error!r}") from error
    if answer.status != 200:
        raise CaseFailed(f"the router's metrics: {answer}")
    return answer.body.decode()


def total(text: str, names: str, *labels: str) -> float | None:
    """Return the sum of all samples whose name matches the pattern `names` and whose labels hold `labels`.

    None when there are none.
    """
    found = [
        float(value)
        for name, held, value in _samples(text)
        if re.search(names, name) and all(label in held for label in labels)
    ]
    return sum(found) if found else None


def series(text: str) -> set[tuple[str, str]]:
    """Return all series, as name and labels."""
    return {(name, labels) for name, labels, _ in _samples(text)}


def _samples(text: str) -> Iterable[tuple[str, str, str]]:
    for match in _SAMPLE.finditer(text):
        yield match[1], match[2] or "", match[3]
