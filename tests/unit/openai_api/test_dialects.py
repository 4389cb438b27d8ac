from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from prefix_router.openai_api import dialects
from prefix_router.openai_api.dialects import Body
from prefix_router.openai_api.prompt import Prompt

Reader = Callable[[Body], Prompt | None]

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def read(reader: Reader, **fields: Any) -> Prompt | None:
    return reader(msgspec.json.decode(json.dumps(fields), type=Body))


def said(reader: Reader, **fields: Any) -> list[tuple[str, list[str]]] | None:
    """Return the roles and texts of a body's prompt."""
    prompt = read(reader, **fields)
    if prompt is None:
        return None
    return [(role, [part.text for part in parts]) for role, parts in prompt.turns()]


def preamble(reader: Reader, **fields: Any) -> dict[str, Any]:
    prompt = read(reader, **fields)
    assert prompt is not None
    return {name: json.loads(value) for name, value in prompt.preamble()}


def test_a_chat_is_its_messages() -> None:
    assert said(dialects.chat, messages=MESSAGES) == [("system", ["Be brief."]), ("user", ["Hi"])]


@pytest.mark.parametrize("messages", [None, []])
@pytest.mark.parametrize("reader", [dialects.chat, dialects.anthropic])
def test_a_chat_without_messages_is_no_prompt(reader: Reader, messages: Any) -> None:
    assert read(reader, messages=messages, system="Be brief.", tools=TOOLS) is None


def test_a_long_conversation_is_read_to_its_bound_and_alike_at_each_place() -> None:
    messages = [{"role": "user", "content": str(n)} for n in range(100)]
    assert said(dialects.chat, messages=messages) == [("user", [str(n)]) for n in range(64)]


@pytest.mark.parametrize(
    "name",
    [
        "tools",
        "functions",
        "documents",
        "chat_template",
        "chat_template_kwargs",
        "mm_processor_kwargs",
        "reasoning_effort",
    ],
)
def test_whatever_a_template_is_given_shapes_a_chat(name: str) -> None:
    assert preamble(dialects.chat, messages=MESSAGES, temperature=1, **{name: ["x"]}) == {name: ["x"]}
    assert preamble(dialects.chat, messages=MESSAGES, **{name: None}) == {}


def test_the_anthropic_system_prompt_comes_before_the_messages() -> None:
    blocks = [{"type": "text", "text": "Be brief."}]
    user = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    expected = said(dialects.chat, messages=MESSAGES)
    assert said(dialects.anthropic, system="Be brief.", messages=user) == expected
    assert said(dialects.anthropic, system=blocks, messages=user) == expected
    assert said(dialects.anthropic, messages=user) == [("user", ["Hi"])]


def test_an_anthropic_prompt_is_shaped_by_tools_template_arguments_and_effort() -> None:
    options = {"tools": TOOLS, "chat_template_kwargs": {"a": 1}}
    found = preamble(dialects.anthropic, messages=MESSAGES, output_config={"effort": "low"}, **options)
    assert found == {**options, "reasoning_effort": "low"}
    assert preamble(dialects.anthropic, messages=MESSAGES, output_config="low") == {}


def test_instructions_and_input_of_a_response_are_the_same_conversation() -> None:
    expected = said(dialects.chat, messages=MESSAGES)
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
    assert said(dialects.responses, instructions="Be brief.", input="Hi") == expected
    assert said(dialects.responses, instructions="Be brief.", input=items) == expected
    assert said(dialects.responses, input=MESSAGES) == expected


def test_a_response_is_shaped_by_its_tools_template_and_effort() -> None:
    options = {
        "tools": TOOLS,
        "chat_template": "x",
        "chat_template_kwargs": {"a": 1},
        "mm_processor_kwargs": {"b": 2},
    }
    found = preamble(
        dialects.responses, input="Hi", reasoning={"effort": "low", "summary": "auto"}, **options
    )
    assert found == {**options, "reasoning_effort": "low"}
    assert preamble(dialects.responses, input=MESSAGES, **options) == options


@pytest.mark.parametrize("value", [None, [], 5, {}, True])
def test_a_response_without_input_is_no_prompt(value: Any) -> None:
    assert read(dialects.responses, input=value, instructions="Be brief.") is None


@pytest.mark.parametrize("name", ["prompt", "input"])
@pytest.mark.parametrize("value", ["Once", ["Once", "upon"], [["Once"]]])
def test_of_several_texts_the_first_counts(name: str, value: Any) -> None:
    assert said(dialects.plain, **{name: value}) == [("", ["Once"])]


@pytest.mark.parametrize("name", ["prompt", "input", "prompt_token_ids", "token_ids", "input_ids"])
@pytest.mark.parametrize("value", [[5, 6], [[5, 6], [7]]])
def test_of_several_lists_of_ids_the_first_counts(name: str, value: Any) -> None:
    prompt = read(dialects.plain, **{name: value})
    assert prompt is not None
    assert prompt.token_ids(10) == [5, 6]


@pytest.mark.parametrize("name", ["prompt_token_ids", "token_ids", "input_ids"])
def test_ids_win_over_text(name: str) -> None:
    prompt = read(dialects.plain, **{name: [5, 6], "prompt": "Once", "prompt_embeds": "QUJD"})
    assert prompt is not None
    assert prompt.token_ids(10) == [5, 6]


def test_ids_stand_for_media_that_their_hashes_tell_apart() -> None:
    features = {"mm_hashes": {"image": ["abc"]}, "kwargs_data": None}
    assert preamble(dialects.plain, token_ids=[5], features=features) == {"mm_hashes": {"image": ["abc"]}}
    assert preamble(dialects.plain, token_ids=[5], features=[1]) == {}


@pytest.mark.parametrize(
    "value", [None, "", [], [[]], [""], 5, True, {}, {"text": "x"}, [None], [True], [{}], [[["Once"]]]]
)
@pytest.mark.parametrize("name", ["prompt", "input"])
def test_an_empty_prompt_or_one_of_another_type_is_none(name: str, value: Any) -> None:
    assert read(dialects.plain, **{name: value}) is None


def test_prompt_embeds_are_a_prompt_and_may_come_with_text() -> None:
    assert said(dialects.plain, prompt_embeds="QUJD") == [("", ["QUJD"])]
    assert said(dialects.plain, prompt_embeds="QUJD", prompt="Once") == [("", ["QUJD"]), ("", ["Once"])]


def test_what_takes_a_plain_prompt_also_takes_a_chat() -> None:
    assert said(dialects.plain, messages=MESSAGES) == said(dialects.chat, messages=MESSAGES)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("query", "documents"),
        ("query", "items"),
        ("queries", "documents"),
        ("queries", "items"),
        ("text_1", "text_2"),
        ("data_1", "data_2"),
    ],
)
def test_a_comparison_is_what_is_compared_and_then_with_what(left: str, right: str) -> None:
    both = {right: ["b", "c"], left: "a"}
    assert said(dialects.comparison, **both) == [("", ["a"]), ("", ["b", "c"])]
    assert said(dialects.comparison, **{left: "a"}) == [("", ["a"])]


def test_a_comparison_of_nothing_is_no_prompt() -> None:
    assert read(dialects.comparison, messages=MESSAGES) is None


def test_an_invocation_is_told_by_its_fields() -> None:
    assert said(dialects.by_shape, messages=MESSAGES) == said(dialects.chat, messages=MESSAGES)
    assert said(dialects.by_shape, prompt="Once") == [("", ["Once"])]
    assert said(dialects.by_shape, input="Once") == [("", ["Once"])]
    assert said(dialects.by_shape, query="a", documents=["b"]) == [("", ["a"]), ("", ["b"])]
    assert read(dialects.by_shape, model="m") is None
