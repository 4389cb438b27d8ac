from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from prefix_router.openai_api.content import Part
from prefix_router.openai_api.prompt import Turn
from prefix_router.openai_api.raw_json import UNDECODABLE
from prefix_router.openai_api.turns import (
    Message,
    anthropic_system,
    anthropic_turn,
    chat_turn,
    embeds,
    instructions,
    item_turn,
    loose_text,
    plain_text,
    user_text,
)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_a_chat_message_is_its_role_and_its_content() -> None:
    assert chat_turn(raw({"role": "user", "content": "Hi"})) == Turn("user", [Part("text", "Hi")])


def test_a_message_that_is_decoded_already_reads_the_same() -> None:
    written = raw({"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Ada"})
    assert chat_turn(msgspec.json.decode(written, type=Message)) == chat_turn(written)


@pytest.mark.parametrize("message", [{}, {"role": None, "content": None}, {"tool_calls": []}])
def test_null_and_absent_members_of_a_message_are_the_same(message: Any) -> None:
    assert chat_turn(raw(message)) == Turn("", [])


def test_all_that_a_template_may_print_of_a_message_is_read_in_a_fixed_order() -> None:
    message = {
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        "function_call": {"name": "g", "arguments": "[]"},
        "content": "text",
        "reasoning_content": "Hm",
        "name": "Ada",
        "role": "assistant",
        "annotations": [{"anything": 1}],
    }
    assert chat_turn(raw(message)) == Turn(
        "assistant",
        [
            Part("name", "Ada", False),
            Part("thinking", "Hm"),
            Part("text", "text"),
            Part("call", "f", False),
            Part("arguments", "{}"),
            Part("call", "g", False),
            Part("arguments", "[]"),
        ],
    )


def test_both_names_of_reasoning_are_the_same() -> None:
    old, new = ({"role": "assistant", name: "Hm"} for name in ("reasoning_content", "reasoning"))
    assert chat_turn(raw(old)) == chat_turn(raw(new))


def test_the_id_that_a_tool_answers_to_does_not_matter() -> None:
    one, two = ({"role": "tool", "tool_call_id": name, "content": "21"} for name in ("call_1", "call_2"))
    assert chat_turn(raw(one)) == chat_turn(raw(two)) == Turn("tool", [Part("text", "21")])


@pytest.mark.parametrize(
    "message", [5, None, "x", ["x"], {"role": 5}, {"content": 5}, {"tool_calls": {}}, {"function_call": "x"}]
)
def test_what_is_not_shaped_like_a_message_is_refused(message: Any) -> None:
    with pytest.raises(UNDECODABLE):
        chat_turn(raw(message))


@pytest.mark.parametrize("role", ["user", "ctx", "msg"])
def test_roles_that_clients_invent_are_the_user(role: str) -> None:
    assert anthropic_turn(raw({"role": role, "content": "Hi"})) == Turn("user", [Part("text", "Hi")])


def test_a_billing_note_that_differs_in_each_request_is_left_out_of_the_system_prompt() -> None:
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"},
        {"type": "text", "text": "You are a router."},
    ]
    expected = Turn("system", [Part("text", "You are a router.")])
    assert anthropic_system(raw(blocks)) == anthropic_system(raw(blocks[1:])) == expected
    assert anthropic_turn(raw({"role": "system", "content": blocks})) == expected


def test_a_user_may_write_what_looks_like_a_billing_note() -> None:
    turn = anthropic_turn(raw({"role": "user", "content": "x-anthropic-billing-header: mine"}))
    assert turn.parts == [Part("text", "x-anthropic-billing-header: mine")]


def test_system_prompts_of_all_dialects_are_the_same() -> None:
    expected = chat_turn(raw({"role": "system", "content": "Be brief."}))
    assert instructions(raw("Be brief.")) == expected
    assert anthropic_system(raw("Be brief.")) == expected
    assert anthropic_system(raw([{"type": "text", "text": "Be brief."}])) == expected


def test_a_plain_input_is_the_first_user_turn() -> None:
    assert user_text(raw("Hi")) == chat_turn(raw({"role": "user", "content": "Hi"}))


def test_a_prompt_without_roles_has_the_empty_role() -> None:
    assert plain_text(raw("Once")) == Turn("", [Part("text", "Once")])


def test_prompt_embeds_are_known_by_all_of_their_data() -> None:
    assert embeds(raw("QUJD")) == Turn("", [Part("prompt_embeds", "QUJD", False)])
    assert embeds(raw(["QUJD", "REVG"])) == Turn("", [Part("prompt_embeds", '["QUJD","REVG"]', False)])


def test_what_is_compared_may_be_a_text_or_several_or_anything() -> None:
    assert loose_text(raw("a")) == Turn("", [Part("text", "a")])
    assert loose_text(raw(["a", {"text": "b"}])) == Turn(
        "", [Part("text", "a"), Part("text", '{"text":"b"}')]
    )
    assert loose_text(raw({"content": []})) == Turn("", [Part("text", '{"content":[]}')])


@pytest.mark.parametrize("kind", [{}, {"type": "message"}, {"type": None}])
def test_a_message_among_items_may_leave_out_its_type(kind: dict[str, Any]) -> None:
    item = {**kind, "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert item_turn(raw(item)) == Turn("user", [Part("text", "Hi")])


def test_an_item_without_a_role_has_the_empty_role() -> None:
    assert item_turn(raw({"content": "Hi"})) == Turn("", [Part("text", "Hi")])


def test_calls_and_their_outputs_are_read_without_ids() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert item_turn(raw(item)) == Turn("assistant", [Part("call", "f", False), Part("arguments", "{}")])
    output = {"type": "function_call_output", "call_id": "c1", "output": "21"}
    assert item_turn(raw(output)) == Turn("tool", [Part("text", "21")])


def test_reasoning_is_read_from_its_content_or_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "Hm"}]
    expected = Turn("assistant", [Part("thinking", "Hm")])
    assert item_turn(raw({"type": "reasoning", "id": "rs_1", "summary": summary})) == expected
    content = [{"type": "reasoning_text", "text": "Hm"}]
    assert item_turn(raw({"type": "reasoning", "content": content, "summary": []})) == expected


def test_any_other_item_is_known_by_its_json_without_id_and_status() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    expected = Turn(
        "web_search_call",
        [Part("web_search_call", '{"action":{"query":"x"},"type":"web_search_call"}', False)],
    )
    assert item_turn(raw(item)) == expected
    assert item_turn(raw({**item, "id": "ws_2", "status": None})) == expected
