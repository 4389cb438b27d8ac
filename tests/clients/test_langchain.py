"""langchain-openai: a chat model, structured output by both of its ways, tools and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def found(fleet: ClientFleet) -> Any:
    return fleet.run("langchain_client")


def test_questions_that_share_a_document_meet_on_one_backend(found: Any) -> None:
    assert len(found["same_prefix"]) == 4
    assert len(set(found["same_prefix"])) == 1


def test_a_stream_gives_the_text_of_a_whole_answer_and_the_usage(found: Any) -> None:
    assert found["stream"] == {"same_text": True, "output_tokens": 40}


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_an_answer_is_read_into_a_class(found: Any, method: str) -> None:
    assert found["structured"][method] == ["Person", "str", "int"]


def test_a_bound_tool_is_called(found: Any) -> None:
    assert found["tool_calls"] == ["weather"]


def test_a_batch_gets_all_its_answers(found: Any) -> None:
    assert found["batch"] == 8


def test_documents_become_vectors(found: Any) -> None:
    assert found["embeddings"] == [64, 64]
