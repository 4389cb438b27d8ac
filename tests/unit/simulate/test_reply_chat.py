from __future__ import annotations

from prefix_router.simulate.reply import Answer, ReplyHead, Usage
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
