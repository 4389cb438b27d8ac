from __future__ import annotations

import pytest

from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.reply import Answer, ReplyHead, ToolCall, Usage
from prefix_router.simulate.reply_messages import MessagesReply
from tests.support.sse import read_events

USAGE = Usage(10, 3, 8)
REPLY = MessagesReply(ReplyHead("x", 1700000000, "m", 1, False))
CALLING = MessagesReply(ReplyHead("x", 1700000000, "m", 1, False, ToolCall("look_up")))


@pytest.mark.parametrize(("finish", "stop"), [("length", "max_tokens"), ("stop", "end_turn")])
def test_a_whole_answer_is_a_message_with_the_reason_in_anthropics_words(finish: str, stop: str) -> None:
    body = REPLY.whole([Answer("one ", finish)], USAGE)
    assert (body["id"], body["type"], body["role"], body["model"]) == ("msg_x", "message", "assistant", "m")
    assert body["content"] == [{"type": "text", "text": "one "}]
    assert body["stop_reason"] == stop
    assert body["usage"] == {"input_tokens": 10, "output_tokens": 3}


def test_a_stream_has_the_events_of_the_api_in_order() -> None:
    answers = [Answer("one two ", "length")]
    stream = REPLY.opening(USAGE) + REPLY.delta(0, "one ", None) + REPLY.delta(0, "two ", "length")
    events = read_events(stream + REPLY.closing(answers, USAGE))
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"] == {"input_tokens": 10, "output_tokens": 0}
    assert [event["delta"]["text"] for event in events[2:4]] == ["one ", "two "]
    assert events[5]["delta"]["stop_reason"] == "max_tokens"
    assert events[5]["usage"] == {"input_tokens": 10, "output_tokens": 3}


def test_the_use_of_a_tool_is_a_block_with_its_input() -> None:
    body = CALLING.whole([Answer('{"a": 1}', "stop")], USAGE)
    [block] = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "look_up", {"a": 1})
    assert body["stop_reason"] == "tool_use"


def test_the_use_of_a_tool_that_was_cut_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        CALLING.whole([Answer('{"a": ', "length")], USAGE)


def test_the_use_of_a_tool_is_streamed_as_pieces_of_json() -> None:
    stream = CALLING.opening(USAGE) + CALLING.delta(0, '{"a": ', None) + CALLING.delta(0, "1}", "stop")
    events = read_events(stream + CALLING.closing([Answer('{"a": 1}', "stop")], USAGE))
    assert events[1]["content_block"]["name"] == "look_up"
    assert [event["delta"]["partial_json"] for event in events[2:4]] == ['{"a": ', "1}"]
    assert events[5]["delta"]["stop_reason"] == "tool_use"
