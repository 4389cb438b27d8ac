from __future__ import annotations

import pytest

from benchmarks.validation.published import Point, nearest_rate, prefill_points
from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES


def point(published: float | None, simulated: float, setting: str = "", quantity: str = "") -> Point:
    return Point("SageMaker", setting, quantity, "share", published, simulated)


def test_a_deviation_is_a_share_of_what_was_published() -> None:
    assert point(100.0, 90.0).deviation == pytest.approx(-0.1)
    assert point(None, 90.0).deviation is None


def test_the_prefill_of_every_profile_is_simulated_and_the_measured_one_is_met() -> None:
    points = {one.setting: one for one in prefill_points()}
    assert set(points) == set(PROFILES)
    deviation = points[DEFAULT_PROFILE].deviation
    assert deviation is not None
    assert abs(deviation) < 0.03, "the source gives 1-3% as the error of the fit"


def test_the_rate_is_the_one_whose_shape_is_nearest() -> None:
    shape = "P90 gain / P50 gain"
    points = [
        point(0.5, 0.3, "6/s", shape),
        point(0.5, 0.55, "8/s", shape),
        point(0.5, 0.7, "10/s", shape),
        point(0.5, 0.5, "10/s", "something else"),
    ]
    assert nearest_rate(points) == 8.0
