from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.forms import WORDS, read_chat_form, read_messages_form, read_responses_form

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "parameters": SCHEMA}

CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
RESPONSES_TOOLS = {"tools": [{"type": "function", **FUNCTION}]}
MESSAGES_TOOLS = {"tools": [{"name": "weather", "input_schema": SCHEMA}]}

REQUIRED = [
    (read_chat_form, {**CHAT_TOOLS, "tool_choice": "required"}),
    (read_responses_form, {**RESPONSES_TOOLS, "tool_choice": "required"}),
    (read_messages_form, {**MESSAGES_TOOLS, "tool_choice": {"type": "any"}}),
]
NAMED = [
    (read_chat_form, {**CHAT_TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}}),
    (read_responses_form, {**RESPONSES_TOOLS, "tool_choice": {"type": "function", "name": "weather"}}),
    (read_messages_form, {**MESSAGES_TOOLS, "tool_choice": {"type": "tool", "name": "weather"}}),
]
RESULTS: list[tuple[Any, dict[str, Any]]] = [
    (read_chat_form, {**CHAT_TOOLS, "messages": [{"role": "tool", "content": "rain"}]}),
    (read_responses_form, {**RESPONSES_TOOLS, "input": [{"type": "function_call_output"}]}),
    (
        read_messages_form,
        {**MESSAGES_TOOLS, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
    ),
]
JSON_SCHEMA = [
    (read_chat_form, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
    (read_responses_form, {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    (read_messages_form, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
]


@pytest.mark.parametrize(("read", "body"), REQUIRED)
def test_a_call_that_is_required_is_made_without_the_servers_flag(read: Any, body: dict[str, Any]) -> None:
    form = read(body, auto_tools=False)
    assert (form.call.name, form.call.chosen_by_name) == ("weather", False)
    assert set(json.loads(form.text(1))) == {"city"}


@pytest.mark.parametrize(("read", "body"), NAMED)
def test_a_tool_can_be_chosen_by_name(read: Any, body: dict[str, Any]) -> None:
    form = read(body, auto_tools=False)
    assert (form.call.name, form.call.chosen_by_name) == ("weather", True)


@pytest.mark.parametrize(("read", "body"), RESULTS)
def test_with_the_flag_the_first_tool_is_called_but_a_result_is_answered_in_words(
    read: Any, body: dict[str, Any]
) -> None:
    assert read(body, auto_tools=True) == WORDS
    before = {"tools": body["tools"]}
    assert read(before, auto_tools=True).call.name == "weather"
    assert read(before, auto_tools=False) == WORDS


@pytest.mark.parametrize(("read", "body"), JSON_SCHEMA)
def test_an_answer_can_be_held_to_a_schema(read: Any, body: dict[str, Any]) -> None:
    form = read(body, auto_tools=False)
    assert form.call is None
    assert set(json.loads(form.text(1))) == {"city"}


def test_an_answer_can_be_held_to_any_json_object() -> None:
    form = read_chat_form({"response_format": {"type": "json_object"}}, auto_tools=False)
    assert isinstance(json.loads(form.text(0) or ""), dict)


@pytest.mark.parametrize("body", [{}, {"response_format": {"type": "text"}}, {"tool_choice": "none"}])
def test_an_answer_is_words_where_nothing_else_is_asked_for(body: dict[str, Any]) -> None:
    form = read_chat_form(body, auto_tools=True)
    assert form == WORDS
    assert form.text(0) is None


@pytest.mark.parametrize(
    "body",
    [
        {"tool_choice": "required"},
        {**CHAT_TOOLS, "tool_choice": "whenever"},
        {**CHAT_TOOLS, "tool_choice": {"function": {"name": "absent"}}},
        {"tools": [{"type": "function", "function": {}}]},
        {"tools": "weather"},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "poem"}},
    ],
)
def test_a_form_that_makes_no_sense_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        read_chat_form(body, auto_tools=True)
