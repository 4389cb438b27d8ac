"""The openai library, with its own way to build requests, read streams and turn refusals into exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def found(fleet: ClientFleet) -> Any:
    return fleet.run("openai_client")


def test_it_lists_the_models_of_the_whole_fleet(found: Any) -> None:
    assert found["models"] == ["simulated-embedder", "simulated-model"]


def test_requests_that_share_a_document_meet_on_one_backend_and_find_it_cached(found: Any) -> None:
    assert len(set(found["same_prefix"]["backends"])) == 1
    first, *later = found["same_prefix"]["cached"]
    assert first == 0
    assert all(cached > 1000 for cached in later)


def test_a_stream_gives_the_text_of_a_whole_answer_and_the_usage(found: Any) -> None:
    assert found["stream"] == {"same_text": True, "completion_tokens": 7}


def test_the_asynchronous_client_gets_all_its_answers(found: Any) -> None:
    assert found["asynchronous"] == 21


def test_a_tool_goes_round(found: Any) -> None:
    tools = found["tools"]
    assert tools["finish_reasons"] == ["tool_calls", "length"]
    assert tools["name"] == "weather"
    assert set(tools["arguments"]) == {"city"}
    assert tools["streamed_the_same"]
    assert tools["answered"]


def test_an_answer_is_read_into_a_class(found: Any) -> None:
    structured = found["structured"]
    assert structured["name"]
    assert isinstance(structured["age"], int)
    assert structured["from_responses"]


def test_the_responses_api_works_whole_and_streamed(found: Any) -> None:
    assert found["responses"] == {"text": True, "first": "response.created", "last": "response.completed"}


def test_embeddings_come_from_a_backend_that_has_the_model(found: Any) -> None:
    assert found["embeddings"]["lengths"] == [64, 64]
    assert found["embeddings"]["backend"].startswith("embed-")


def test_each_refusal_becomes_its_exception_with_the_id_of_the_request(found: Any) -> None:
    assert found["errors"] == {
        "unknown model": ["NotFoundError", True],
        "bad request": ["BadRequestError", True],
        "too long": ["BadRequestError", True],
        "wrong key": ["AuthenticationError", True],
        "no such path": ["NotFoundError", True],
    }


def test_the_router_has_counted_them(found: Any, fleet: ClientFleet) -> None:
    status = fleet.status()
    assert status["totals"]["requests"] >= 38
    assert status["active_requests"] == 0
    assert status["totals"]["cached_tokens"] > 0
