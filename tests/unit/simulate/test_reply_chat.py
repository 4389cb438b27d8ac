from __future__ import annotations

import json

import pytest

from prefix_router.simulate.reply import Answer, ReplyHead, ToolCall, Usage
from prefix_router.simulate.reply_chat import ChatReply
from tests.support.sse import read_events

USAGE = Usage(10, 3, 8)
ANSWERS = [Answer("one two ", "length"), Answer("six ", "length")]


def make_reply(*, answers: int = 1, include_usage: bool = False) -> ChatReply:
    return ChatReply(ReplyHead("x", 1700000000, "m", answers, include_usage))


def test_a_whole_answer_has_a_message_for_each_choice() -> None:
    body = make_reply(answers=2).whole(ANSWERS, USAGE)
    assert (body["id"], body["object"], body["created"], body["model"]) == (
        *("chatcmpl-x", "chat.completion"),
        *(1700000000, "m"),
    )
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["one two ", "six "]
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}


def test_a_stream_states_the_role_then_text_then_the_reason_then_the_end() -> None:
    reply = make_reply()
    stream = reply.opening(USAGE) + reply.delta(0, "one ", None) + reply.delta(0, "two ", "length")
    *chunks, end = read_events(stream + reply.closing(ANSWERS[:1], USAGE))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "one "},
        {"content": "two "},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert end == "[DONE]"


def test_usage_ends_a_stream_when_it_was_asked_for() -> None:
    chunk, end = read_events(make_reply(include_usage=True).closing(ANSWERS[:1], USAGE))
    assert chunk["choices"] == []
    assert chunk["usage"] == USAGE.as_openai()
    assert end == "[DONE]"


@pytest.mark.parametrize(("by_name", "reason"), [(False, "tool_calls"), (True, "stop")])
def test_a_call_has_the_arguments_and_no_content(by_name: bool, reason: str) -> None:
    head = ReplyHead("x", 1700000000, "m", 1, False, ToolCall("look_up", by_name))
    [choice] = ChatReply(head).whole([Answer('{"a": 1}', "stop")], USAGE)["choices"]
    [call] = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]) == ("function", {"name": "look_up", "arguments": '{"a": 1}'})
    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == reason


def test_a_streamed_call_is_named_once_and_its_arguments_follow_in_pieces() -> None:
    reply = ChatReply(ReplyHead("x", 1700000000, "m", 1, False, ToolCall("look_up")))
    stream = reply.opening(USAGE) + reply.delta(0, '{"a": ', None) + reply.delta(0, "1}", "stop")
    chunks = [chunk["choices"][0] for chunk in read_events(stream)]
    assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
    calls = [chunk["delta"]["tool_calls"][0] for chunk in chunks[1:]]
    assert [call["function"].get("name") for call in calls] == ["look_up", None, None]
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"a": 1}
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, None, "tool_calls"]
