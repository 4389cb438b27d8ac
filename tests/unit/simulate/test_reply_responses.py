from __future__ import annotations

from prefix_router.simulate.reply import Answer, ReplyHead, ToolCall, Usage
from prefix_router.simulate.reply_responses import ResponsesReply
from tests.support.sse import read_events

USAGE = Usage(10, 3, 8)


def make_reply() -> ResponsesReply:
    return ResponsesReply(ReplyHead("x", 1700000000, "m", 1, False), "resp_before", "Be dull.")


def test_a_whole_answer_is_a_response_with_one_message() -> None:
    body = make_reply().whole([Answer("one ", "stop")], USAGE)
    assert (body["id"], body["object"], body["status"]) == ("resp_x", "response", "completed")
    assert body["output"][0]["content"][0]["text"] == "one "
    assert body["previous_response_id"] == "resp_before"
    assert body["instructions"] == "Be dull."
    assert body["usage"]["input_tokens"] == 10
    assert body["usage"]["input_tokens_details"]["cached_tokens"] == 8
    assert body["usage"]["total_tokens"] == 13


def test_a_response_that_was_cut_says_so() -> None:
    body = make_reply().whole([Answer("one ", "length")], USAGE)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_response_in_progress_has_no_output_yet() -> None:
    body = make_reply().unfinished()
    assert (body["status"], body["output"], body["usage"]) == ("in_progress", [], None)


def test_a_stream_has_numbered_events_and_ends_with_the_response() -> None:
    reply = make_reply()
    answers = [Answer("one two ", "stop")]
    stream = reply.opening(USAGE) + reply.delta(0, "one ", None) + reply.delta(0, "two ", "stop")
    events = read_events(stream + reply.closing(answers, USAGE))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert [event["delta"] for event in events[4:6]] == ["one ", "two "]
    assert events[-1]["response"] == reply.whole(answers, USAGE)


def test_a_call_is_the_only_output_and_is_streamed_as_its_arguments() -> None:
    reply = ResponsesReply(ReplyHead("x", 1700000000, "m", 1, False, ToolCall("look_up")), None, None)
    answers = [Answer('{"a": 1}', "stop")]
    [call] = reply.whole(answers, USAGE)["output"]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look_up", '{"a": 1}')
    assert call["call_id"] == "call_x"
    stream = reply.opening(USAGE) + reply.delta(0, '{"a": ', None) + reply.delta(0, "1}", "stop")
    events = read_events(stream + reply.closing(answers, USAGE))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[5]["arguments"] == '{"a": 1}'
    assert events[6]["item"] == call | {"id": events[2]["item"]["id"]}
