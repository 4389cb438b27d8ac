"""The anthropic library, against `/v1/messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def found(fleet: ClientFleet) -> Any:
    return fleet.run("anthropic_client")


def test_messages_that_share_a_system_prompt_meet_on_one_backend(found: Any) -> None:
    assert len(found["same_prefix"]) == 4
    assert len(set(found["same_prefix"])) == 1


def test_a_stream_gives_the_text_of_a_whole_answer_and_the_usage(found: Any) -> None:
    assert found["stream"] == {"same_text": True, "stop_reason": "max_tokens", "output_tokens": 5}


def test_tokens_are_counted(found: Any) -> None:
    assert found["count_tokens"] > 1000


def test_a_tool_goes_round(found: Any) -> None:
    assert found["tools"] == {
        "stop_reasons": ["tool_use", "max_tokens"],
        "name": "weather",
        "arguments": ["city"],
    }


def test_each_refusal_becomes_its_exception(found: Any) -> None:
    assert found["errors"] == {
        "unknown model": ["NotFoundError", "error"],
        "bad request": ["BadRequestError", "error"],
        "wrong key": ["AuthenticationError", None],
    }
