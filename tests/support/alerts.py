"""The alerts as the tests read them."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.tools import ROOT

PATH = ROOT / "config" / "alerts.yml"


def load() -> list[dict[str, Any]]:
    """Every alerting rule, in the order of the file."""
    groups = yaml.safe_load(PATH.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]
