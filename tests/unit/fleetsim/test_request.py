from __future__ import annotations

import pytest

from prefix_router.fleetsim.request import SimulatedRequest, check


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (16, 1), (17, 2), (32, 2)])
def test_a_prompt_has_a_block_for_each_16_tokens_begun(tokens: int, blocks: int) -> None:
    check(SimulatedRequest(0.0, tuple(range(blocks)), tokens, 1))
    with pytest.raises(ValueError, match=f"{tokens} prompt tokens are {blocks} blocks, got {blocks + 1}"):
        check(SimulatedRequest(0.0, tuple(range(blocks + 1)), tokens, 1))


def test_a_request_before_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match="before the start"):
        check(SimulatedRequest(-1.0, (1,), 16, 1))


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (16, 0)])
def test_a_request_without_tokens_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="at least one prompt and one output token"):
        check(SimulatedRequest(0.0, (1,), prompt, output))
