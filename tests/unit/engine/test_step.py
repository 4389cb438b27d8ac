from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from prefix_router.engine.request import EngineRequest
from prefix_router.engine.step import StepResult


def test_a_result_cannot_be_changed_after_the_fact() -> None:
    result = StepResult(0.1, [EngineRequest(1, 1)], [], [])
    with pytest.raises(FrozenInstanceError):
        result.duration_seconds = 0.2  # type: ignore[misc]
