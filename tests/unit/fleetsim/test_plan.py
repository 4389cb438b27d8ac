from __future__ import annotations

from typing import Any

import pytest

from prefix_router.engine.cost import PROFILES
from prefix_router.fleetsim.plan import FleetPlan


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_of_the_engine_can_be_simulated(profile: str) -> None:
    assert FleetPlan("random", profile=profile).profile == profile


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("profile", "abacus"),
        ("replicas", 0),
        ("routers", 0),
        ("concurrency_threshold", 0),
        ("prefix_tokens", 0),
        ("router_overhead_seconds", -0.1),
        ("api_overhead_seconds", -0.1),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{setting}|{value}"):
        FleetPlan("random", **{setting: value})
