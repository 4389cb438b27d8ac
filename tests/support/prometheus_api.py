"""A running Prometheus, asked over its HTTP API."""

from __future__ import annotations

import json
import math
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

POLL_SECONDS = 0.2
APPEARS_WITHIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """The server at `url`."""

    url: str

    def query(self, expression: str) -> list[float]:
        """The values that an instant query gives now, those that are not a number left out.

        Raises urllib.error.HTTPError when Prometheus refuses the expression.
        """
        result = self._get("query", query=expression)["result"]
        values = (float(sample["value"][1]) for sample in result)
        return [value for value in values if not math.isnan(value)]

    def wait_until(self, expression: str) -> None:
        """Ask again until the expression gives anything. Raises AssertionError when it never does."""
        deadline = time.monotonic() + APPEARS_WITHIN_SECONDS
        while not self.query(expression):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            time.sleep(POLL_SECONDS)

    def health_of_targets(self) -> dict[str, str]:
        """Scraped URL -> up, down or unknown."""
        targets = self._get("targets", state="active")["activeTargets"]
        return {target["scrapeUrl"]: target["health"] for target in targets}

    def rules(self) -> dict[str, str]:
        """Name of each alerting rule -> what its last evaluation met: "" when all was well."""
        groups = self._get("rules", type="alert")["groups"]
        return {rule["name"]: rule.get("lastError", "") for group in groups for rule in group["rules"]}

    def _get(self, what: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=10) as response:
            return json.load(response)["data"]
