"""What is said of one metric, once: the exposition, the documents and the tests all read it here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

PREFIX = "prefix_router_"

NONE = "none"
"""The label value for "no backend" and "no reason": the router answered by itself."""

OTHER = "other"
"""The label value for what is outside a closed set, such as a backend that has left."""

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Kind(Enum):
    """The type of a metric, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    name: what a dashboard asks for, without `PREFIX`; counters end in `_total`.
    unit: what one counts, or the range of a ratio, for people.
    meaning: what it says, in Markdown; in the exposition the same words are its help.
    look_when: what an operator sees elsewhere that should lead to this metric, and what it then tells.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    meaning: str
    look_when: str

    @property
    def help(self) -> str:
        """The meaning without Markdown."""
        return _LINK.sub(r"\1", self.meaning).replace("`", "")


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics about one subject, in the order in which they are shown."""

    title: str
    metrics: tuple[Metric, ...]
