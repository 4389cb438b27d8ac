"""litellm, by both of the providers that people configure for a server like this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.client_fleet import ClientFleet

pytestmark = [pytest.mark.clients, pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])]


@pytest.fixture(scope="module")
def found(fleet: ClientFleet) -> Any:
    return fleet.run("litellm_client")


def test_questions_that_share_a_document_meet_on_one_backend(found: Any, provider: str) -> None:
    assert len(found[provider]["backends"]) == 4
    assert len(set(found[provider]["backends"])) == 1


def test_a_stream_gives_the_text_of_a_whole_answer(found: Any, provider: str) -> None:
    assert found[provider]["same_text"]


def test_the_asynchronous_call_is_answered(found: Any, provider: str) -> None:
    assert found[provider]["asynchronous"]


def test_an_unknown_model_becomes_its_exception(found: Any, provider: str) -> None:
    assert found[provider]["error"] == "NotFoundError"
