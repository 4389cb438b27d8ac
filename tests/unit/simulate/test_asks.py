from __future__ import annotations

from typing import Any

import pytest

from prefix_router.simulate import asks, prompts
from prefix_router.simulate.errors import InvalidRequestError

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        asks.decode_body(body)


def test_a_chat_is_read_with_its_options() -> None:
    ask = asks.read_chat(
        {
            "model": "m",
            "messages": MESSAGES,
            "n": 2,
            "max_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": "s",
        }
    )
    assert ask == asks.Ask("m", (prompts.render_chat({"messages": MESSAGES}),), 9, 2, True, True, "s")


def test_a_chat_without_options_has_one_unlimited_answer() -> None:
    ask = asks.read_chat({"messages": MESSAGES})
    assert (ask.model, ask.max_tokens, ask.answers, ask.stream, ask.include_usage) == (
        *(None, None, 1),
        *(False, False),
    )


def test_the_newer_name_of_a_chats_limit_wins() -> None:
    ask = asks.read_chat({"messages": MESSAGES, "max_tokens": 9, "max_completion_tokens": 4})
    assert ask.max_tokens == 4


def test_each_api_has_its_own_name_for_the_limit() -> None:
    assert asks.read_completion({"prompt": "hi", "max_tokens": 3}).max_tokens == 3
    assert asks.read_messages({"messages": MESSAGES, "max_tokens": 4}).max_tokens == 4
    assert asks.read_responses({"max_output_tokens": 5}, b"").max_tokens == 5


def test_a_list_of_completion_prompts_is_several_prompts() -> None:
    assert asks.read_completion({"prompt": ["aaaa", "bbbb"]}).prompts == (b"aaaa", b"bbbb")


def test_the_messages_api_needs_a_limit() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asks.read_messages({"messages": MESSAGES})
    assert caught.value.param == "max_tokens"


def test_a_system_prompt_beside_the_messages_is_the_same_as_a_system_message() -> None:
    beside = asks.read_messages({"system": "Be dull.", "messages": MESSAGES, "max_tokens": 1})
    among = asks.read_chat({"messages": [{"role": "system", "content": "Be dull."}, *MESSAGES]})
    instructed = asks.read_responses({"instructions": "Be dull."}, asks.render_conversation({"input": "hi"}))
    assert beside.prompts == among.prompts == instructed.prompts


def test_the_input_of_a_response_is_text_or_items() -> None:
    assert asks.render_conversation({"input": "hi"}) == asks.render_conversation({"input": MESSAGES})


@pytest.mark.parametrize("body", [{}, {"input": ""}, {"input": []}, {"input": 5}])
def test_a_response_without_input_is_invalid(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        asks.render_conversation(body)


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True, []])
def test_a_limit_must_be_a_positive_whole_number(value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asks.read_chat({"messages": MESSAGES, "max_tokens": value})
    assert caught.value.param == "max_tokens"


def test_the_number_of_answers_is_bounded() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asks.read_completion({"prompt": "hi", "n": 129})
    assert caught.value.param == "n"


def test_a_model_must_be_text() -> None:
    with pytest.raises(InvalidRequestError):
        asks.read_chat({"messages": MESSAGES, "model": 5})


def test_tokenize_takes_a_prompt_or_messages() -> None:
    assert asks.read_tokenize({"prompt": "abcd"}) == b"abcd"
    assert asks.read_tokenize({"messages": MESSAGES}) == prompts.render_chat({"messages": MESSAGES})
    with pytest.raises(InvalidRequestError):
        asks.read_tokenize({})
