"""The Grafana dashboard as the tests read it: its panels, and its queries with the variables filled in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.support.tools import ROOT

PATH = ROOT / "config" / "grafana" / "dashboards" / "prefix-router.json"

_FILLED_IN = {"$__rate_interval": "1m", "$router": ".*"}
"""What Grafana would put in: four scrape intervals or more, and the variable at `All`."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of one panel, and how its series are named."""

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
        grouped = re.findall(r"\bby \(([^)]*)\)", self.expression)
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


def load() -> dict[str, Any]:
    """Read the whole dashboard."""
    document: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return document


def queries() -> list[Query]:
    """Every query of every panel, in the order of the page, and those of the annotations."""
    document = load()
    targets = [
        (panel["title"], target) for panel in document["panels"] for target in panel.get("targets", ())
    ]
    targets += [(annotation["name"], annotation) for annotation in document["annotations"]["list"]]
    return [Query(title, target["expr"], target.get("legendFormat", "")) for title, target in targets]
