from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from prefix_router.openai_api.allowance import Allowance
from prefix_router.openai_api.content import Part
from prefix_router.openai_api.prompt import Reader, Turn
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


def read(reader: Reader, value: Any) -> Turn:
    return reader(Raw(json.dumps(value).encode()), Allowance())


def test_a_chat_message_is_its_role_and_its_content() -> None:
    assert read(chat_turn, {"role": "user", "content": "Hi"}) == Turn("user", [Part("text", "Hi")])


def test_a_message_that_is_decoded_already_reads_the_same() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Ada"}
    decoded = msgspec.json.decode(json.dumps(message), type=Message)
    assert chat_turn(decoded, Allowance()) == read(chat_turn, message)


@pytest.mark.parametrize("message", [{}, {"role": None, "content": None}, {"tool_calls": []}])
def test_null_and_absent_members_of_a_message_are_the_same(message: Any) -> None:
    assert read(chat_turn, message) == Turn("", [])


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
    assert read(chat_turn, message) == Turn(
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
    assert read(chat_turn, old) == read(chat_turn, new)


def test_the_id_that_a_tool_answers_to_does_not_matter() -> None:
    one, two = ({"role": "tool", "tool_call_id": name, "content": "21"} for name in ("call_1", "call_2"))
    assert read(chat_turn, one) == read(chat_turn, two) == Turn("tool", [Part("text", "21")])


@pytest.mark.parametrize(
    "message", [5, None, "x", ["x"], {"role": 5}, {"content": 5}, {"tool_calls": {}}, {"function_call": "x"}]
)
def test_what_is_not_shaped_like_a_message_is_refused(message: Any) -> None:
    with pytest.raises(UNDECODABLE):
        read(chat_turn, message)


@pytest.mark.parametrize("role", ["user", "ctx", "msg"])
def test_roles_that_clients_invent_are_the_user(role: str) -> None:
    assert read(anthropic_turn, {"role": role, "content": "Hi"}) == Turn("user", [Part("text", "Hi")])


def test_a_billing_note_that_differs_in_each_request_is_left_out_of_the_system_prompt() -> None:
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"},
        {"type": "text", "text": "You are a router."},
    ]
    expected = Turn("system", [Part("text", "You are a router.")])
    assert read(anthropic_system, blocks) == read(anthropic_system, blocks[1:]) == expected
    assert read(anthropic_turn, {"role": "system", "content": blocks}) == expected


def test_a_user_may_write_what_looks_like_a_billing_note() -> None:
    turn = read(anthropic_turn, {"role": "user", "content": "x-anthropic-billing-header: mine"})
    assert turn.parts == [Part("text", "x-anthropic-billing-header: mine")]


def test_system_prompts_of_all_dialects_are_the_same() -> None:
    expected = read(chat_turn, {"role": "system", "content": "Be brief."})
    assert read(instructions, "Be brief.") == expected
    assert read(anthropic_system, "Be brief.") == expected
    assert read(anthropic_system, [{"type": "text", "text": "Be brief."}]) == expected


def test_a_plain_input_is_the_first_user_turn() -> None:
    assert read(user_text, "Hi") == read(chat_turn, {"role": "user", "content": "Hi"})


def test_a_prompt_without_roles_has_the_empty_role() -> None:
    assert read(plain_text, "Once") == Turn("", [Part("text", "Once")])


def test_prompt_embeds_are_known_by_all_of_their_data() -> None:
    assert read(embeds, "QUJD") == Turn("", [Part("prompt_embeds", "QUJD", False)])
    assert read(embeds, ["QUJD", "REVG"]) == Turn("", [Part("prompt_embeds", '["QUJD","REVG"]', False)])


def test_what_is_compared_may_be_a_text_or_several_or_anything() -> None:
    assert read(loose_text, "a") == Turn("", [Part("text", "a")])
    assert read(loose_text, ["a", {"text": "b"}]) == Turn(
        "", [Part("text", "a"), Part("text", '{"text":"b"}')]
    )
    assert read(loose_text, {"content": []}) == Turn("", [Part("text", '{"content":[]}')])


@pytest.mark.parametrize("kind", [{}, {"type": "message"}, {"type": None}])
def test_a_message_among_items_may_leave_out_its_type(kind: dict[str, Any]) -> None:
    item = {**kind, "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert read(item_turn, item) == Turn("user", [Part("text", "Hi")])


def test_an_item_without_a_role_has_the_empty_role() -> None:
    assert read(item_turn, {"content": "Hi"}) == Turn("", [Part("text", "Hi")])


def test_calls_and_their_outputs_are_read_without_ids() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert read(item_turn, item) == Turn("assistant", [Part("call", "f", False), Part("arguments", "{}")])
    output = {"type": "function_call_output", "call_id": "c1", "output": "21"}
    assert read(item_turn, output) == Turn("tool", [Part("text", "21")])


def test_reasoning_is_read_from_its_content_or_its_summary() -> None:
    summary = [{"type": "summary_text", "text": "Hm"}]
    expected = Turn("assistant", [Part("thinking", "Hm")])
    assert read(item_turn, {"type": "reasoning", "id": "rs_1", "summary": summary}) == expected
    content = [{"type": "reasoning_text", "text": "Hm"}]
    assert read(item_turn, {"type": "reasoning", "content": content, "summary": []}) == expected


def test_any_other_item_is_known_by_its_json_without_id_and_status() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    expected = Turn(
        "web_search_call",
        [Part("web_search_call", '{"action":{"query":"x"},"type":"web_search_call"}', False)],
    )
    assert read(item_turn, item) == expected
    assert read(item_turn, {**item, "id": "ws_2", "status": None}) == expected
