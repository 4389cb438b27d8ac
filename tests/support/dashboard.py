"""The Grafana dashboards as the tests read them: panels, and queries with the variables filled in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.support.tools import ROOT

FOLDER = ROOT / "config" / "grafana" / "dashboards"
PATHS = tuple(sorted(FOLDER.glob("*.json")))

_FILLED_IN = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*", "$backend": ".*"}
"""What Grafana would put in: four scrape intervals or more, and each variable at `All`."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of one panel, and how its series are named."""

    dashboard: str
    panel: str
    expression: str
    legend: str

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics in it."""
        return set(re.findall(r"\b\w+(?=\{)", self.expression))

    @property
    def labels(self) -> set[str]:
        """The labels it selects, groups and names by."""
        selected = re.findall(r"(\w+)(?:=~|!=|=)\"", self.expression)
        grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", self.expression)
        named = re.findall(r"\{\{(\w+)\}\}", self.legend)
        return {*selected, *named, *(label for group in grouped for label in group.split(", ") if label)}

    @property
    def executable(self) -> str:
        """The expression as Prometheus gets it."""
        text = self.expression
        for variable, value in _FILLED_IN.items():
            text = text.replace(variable, value)
        if "$" in text:
            raise ValueError(f"{self.panel}: an unknown variable in {text}")
        return text


def load_all() -> dict[str, dict[str, Any]]:
    """Every dashboard, by the name of its file without the ending."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in PATHS}


def queries() -> list[Query]:
    """Every query of every panel, in the order of the pages, and those of the annotations."""
    found = []
    for name, document in load_all().items():
        targets = [
            (panel["title"], target) for panel in document["panels"] for target in panel.get("targets", ())
        ]
        targets += [(mark["name"], mark) for mark in document["annotations"]["list"]]
        found += [
            Query(name, title, target["expr"], target.get("legendFormat", "")) for title, target in targets
        ]
    return found
