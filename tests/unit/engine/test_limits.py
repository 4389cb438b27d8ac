from __future__ import annotations

import pytest

from prefix_router.engine.limits import EngineLimits


def test_the_defaults_are_vllms_on_an_h100() -> None:
    limits = EngineLimits()
    assert (limits.block_size, limits.step_token_budget, limits.max_sequences) == (16, 8192, 1024)


@pytest.mark.parametrize(
    ("block_size", "budget", "sequences"), [(0, 8192, 1024), (16, 8192, 0), (16, 1023, 1024)]
)
def test_limits_that_could_not_schedule_are_refused(block_size: int, budget: int, sequences: int) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        EngineLimits(block_size, budget, sequences)
