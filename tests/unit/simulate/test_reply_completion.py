from __future__ import annotations

from prefix_router.simulate.reply import Answer, ReplyHead, Usage
from prefix_router.simulate.reply_completion import CompletionReply
from tests.support.sse import read_events

USAGE = Usage(10, 3, 8)
ANSWERS = [Answer("one two ", "stop")]


def make_reply(*, include_usage: bool = False) -> CompletionReply:
    return CompletionReply(ReplyHead("x", 1700000000, "m", 1, include_usage))


def test_a_whole_answer_has_its_text_and_usage() -> None:
    body = make_reply().whole(ANSWERS, USAGE)
    assert (body["id"], body["object"]) == ("cmpl-x", "text_completion")
    assert body["choices"][0]["text"] == "one two "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == USAGE.as_openai()


def test_a_stream_is_text_and_the_end() -> None:
    reply = make_reply()
    stream = reply.opening(USAGE) + reply.delta(0, "one ", None) + reply.delta(0, "two ", "stop")
    *chunks, end = read_events(stream + reply.closing(ANSWERS, USAGE))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["one ", "two "]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "stop"]
    assert end == "[DONE]"


def test_usage_ends_a_stream_when_it_was_asked_for() -> None:
    chunk, end = read_events(make_reply(include_usage=True).closing(ANSWERS, USAGE))
    assert (chunk["choices"], chunk["usage"], end) == ([], USAGE.as_openai(), "[DONE]")
