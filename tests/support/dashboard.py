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
    """One PromQL expression of one panel."""

    panel: str
    expression: str

    @property
    def metrics(self) -> set[str]:
        """The names of the router's metrics in it."""
        return set(re.findall(r"\bprefix_router_\w+", self.expression))

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
    """Every query of every panel, in the order of the page."""
    return [
        Query(panel["title"], target["expr"])
        for panel in load()["panels"]
        for target in panel.get("targets", ())
    ]
