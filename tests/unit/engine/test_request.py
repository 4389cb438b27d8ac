from __future__ import annotations

import pytest

from prefix_router.engine.request import EngineRequest, RequestStatus


def test_a_new_request_waits_and_holds_nothing() -> None:
    request = EngineRequest(10, 5)
    assert request.status is RequestStatus.WAITING
    assert request.blocks == []
    assert request.total_tokens == 10


def test_total_tokens_grow_with_the_output() -> None:
    request = EngineRequest(10, 5)
    request.generated_tokens = 3
    assert request.total_tokens == 13


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (-1, 1)])
def test_a_request_without_prompt_or_output_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="at least one prompt and one output token"):
        EngineRequest(prompt, output)


def test_equal_requests_are_different_requests() -> None:
    assert EngineRequest(10, 5) != EngineRequest(10, 5)
