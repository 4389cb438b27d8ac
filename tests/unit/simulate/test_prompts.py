from __future__ import annotations

from typing import Any

import pytest

from prefix_router.simulate import tokens
from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.prompts import (
    MEDIA_TOKENS,
    render_answer,
    render_chat,
    render_completion,
    render_messages,
    render_preamble,
    render_role,
)

QUESTION = {"role": "user", "content": "What is a prefix?"}


def chat(*messages: Any, **fields: Any) -> bytes:
    return render_chat({"messages": list(messages), **fields})


def test_a_prompt_is_a_whole_number_of_tokens() -> None:
    for length in range(8):
        assert len(chat({"role": "user", "content": "x" * length}, tools=[{"a": "b" * length}])) % 4 == 0


def test_the_next_turn_begins_with_everything_the_engine_has_seen() -> None:
    output = tokens.generate(1, 10)
    answer = {"role": "assistant", "content": tokens.decode(output)}
    second = chat(QUESTION, answer, {"role": "user", "content": "And then?"})
    assert second.startswith(chat(QUESTION) + output)
    assert render_messages([answer]) == render_answer(output)


def test_a_prompt_ends_where_the_assistant_begins() -> None:
    assert chat(QUESTION).endswith(render_role("assistant"))


@pytest.mark.parametrize(
    "changed",
    [
        chat({"role": "system", "content": "What is a prefix?"}),
        chat({"role": "user", "content": "What is a suffix?"}),
        chat(QUESTION, tools=[{"type": "function"}]),
        chat(QUESTION, chat_template_kwargs={"thinking": True}),
        chat(QUESTION, documents=[{"text": "x"}]),
        chat(QUESTION, QUESTION),
        chat({**QUESTION, "tool_calls": [{"function": {"name": "f"}}]}),
    ],
)
def test_what_a_model_would_see_changes_the_prompt(changed: bytes) -> None:
    assert changed != chat(QUESTION)


@pytest.mark.parametrize(
    "same",
    [
        chat(QUESTION, temperature=0.3, user="me", stream=True, metadata={"a": 1}),
        chat(QUESTION, tools=None, documents=[]),
        chat({"role": "user", "content": [{"type": "text", "text": "What is a prefix?"}]}),
        chat({"content": "What is a prefix?", "role": "user"}),
    ],
)
def test_what_a_model_would_not_see_changes_nothing(same: bytes) -> None:
    assert same == chat(QUESTION)


def test_tools_come_first_and_do_not_depend_on_the_order_of_their_keys() -> None:
    one = chat(QUESTION, tools=[{"name": "f", "type": "function"}])
    other = chat(QUESTION, tools=[{"type": "function", "name": "f"}])
    assert one == other
    assert one.startswith(render_preamble({"tools": [{"type": "function", "name": "f"}]}))


def test_messages_cannot_be_moved_across_their_border() -> None:
    one = chat({"role": "user", "content": "ab"}, {"role": "user", "content": "cd"})
    other = chat({"role": "user", "content": "abcd"}, {"role": "user", "content": ""})
    assert one != other


def image(url: str) -> bytes:
    return chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})


def test_an_image_counts_as_its_tokens_and_is_told_by_the_end_of_its_url() -> None:
    bucket = "https://images.example/bucket/" + "x" * 500
    assert tokens.count(image("a")) == tokens.count(chat({"role": "user", "content": ""})) + MEDIA_TOKENS
    assert image(bucket + "1") != image(bucket + "2")
    assert image(bucket + "1") == image(bucket + "1")


def test_a_part_of_an_unknown_kind_is_still_part_of_the_prompt() -> None:
    one = chat({"role": "user", "content": [{"type": "novelty", "x": 1}]})
    other = chat({"role": "user", "content": [{"type": "novelty", "x": 2}]})
    assert one != other


def test_a_completion_takes_text_texts_ids_and_lists_of_ids() -> None:
    assert render_completion("abcdefgh") == (b"abcdefgh",)
    assert render_completion(["abcd", "efgh"]) == (b"abcd", b"efgh")
    assert [tokens.to_ids(prompt) for prompt in render_completion([1, 2, 3])] == [[1, 2, 3]]
    assert [tokens.to_ids(prompt) for prompt in render_completion([[1, 2], [3]])] == [[1, 2], [3]]


@pytest.mark.parametrize(
    "prompt", [None, "", [], [[]], [1, "a"], ["a", 1], {"a": 1}, [-1], [2**40], [True], 7]
)
def test_a_completion_of_anything_else_is_invalid(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError):
        render_completion(prompt)


@pytest.mark.parametrize(
    "messages",
    [None, [], "hi", ["hi"], [{"content": "no role"}], [{"role": "user", "content": 5}]],
)
def test_a_chat_of_anything_but_messages_is_invalid(messages: Any) -> None:
    with pytest.raises(InvalidRequestError):
        render_chat({"messages": messages})


def test_a_message_may_have_no_content() -> None:
    assert chat({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]})
