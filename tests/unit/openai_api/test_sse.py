from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.openai_api.sse import SseObserver
from prefix_router.openai_api.usage import Usage

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
TOKEN = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
CHAT_USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 2048,
        "completion_tokens": 7,
        "total_tokens": 2055,
        "prompt_tokens_details": {"cached_tokens": 2032},
    },
}


def data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def named(name: str, value: dict[str, Any]) -> bytes:
    return f"event: {name}\n".encode() + data({"type": name, **value})


def observed(*chunks: bytes, limit_bytes: int = 1024 * 1024) -> SseObserver:
    observer = SseObserver(limit_bytes)
    for chunk in chunks:
        observer.feed(chunk)
    observer.finish()
    return observer


def state(observer: SseObserver) -> tuple[object, ...]:
    return (
        observer.first_content,
        observer.terminal,
        observer.error,
        observer.usage,
        observer.response_id,
    )


class TestFirstContent:
    @pytest.mark.parametrize(
        "delta",
        [
            {"content": "Hello"},
            {"role": "assistant", "content": "Hello"},
            {"reasoning_content": "Let me see"},
            {"reasoning": "Let me see"},
            {"tool_calls": [{"index": 0, "function": {"name": "now", "arguments": ""}}]},
            {"refusal": "No"},
            {"a_field_of_next_year": "x"},
        ],
    )
    def test_any_delta_of_a_chat_choice_is_content(self, delta: dict[str, Any]) -> None:
        assert observed(data({"choices": [{"index": 0, "delta": delta}]})).first_content

    @pytest.mark.parametrize(
        "event",
        [
            {"choices": [{"text": "Hello"}]},
            {"choices": [{"text": ""}, {"text": "second of two"}]},
            {"choices": [{"token_ids": [17]}]},
            {"type": "response.output_text.delta", "delta": "Hello"},
            {"type": "response.reasoning_text.delta", "delta": "Let me see"},
            {"type": "response.function_call_arguments.delta", "delta": "{"},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello"}},
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}},
            {"type": "transcript.text.delta", "delta": "Hello"},
        ],
    )
    def test_generated_text_of_every_api_is_content(self, event: dict[str, Any]) -> None:
        assert observed(data(event)).first_content

    @pytest.mark.parametrize(
        "stream",
        [
            b": keep-alive\n\n",
            b"event: ping\ndata: {}\n\n",
            b"data: [DONE]\n\n",
            b"id: 4\nretry: 100\n\n",
            b"\n\n\n\n",
            b"",
            data(ROLE),
            data({"choices": [{"delta": {"role": "assistant", "content": None, "tool_calls": []}}]}),
            data({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            data({"choices": [{"text": ""}]}),
            data({"choices": [{"delta": None}]}),
            data({"type": "ping"}),
            data({"type": "response.output_text.delta", "delta": ""}),
            data({"error": {"message": "out of memory", "code": 500}}),
            data(CHAT_USAGE),
            named("response.created", {"response": {"id": "resp_1", "object": "response"}}),
            named("response.output_item.added", {"item": {"type": "message", "content": []}}),
            named("message_start", {"message": {"usage": {"input_tokens": 5, "output_tokens": 0}}}),
            named("content_block_start", {"content_block": {"type": "text", "text": ""}}),
            named("message_delta", {"delta": {"stop_reason": "end_turn"}}),
        ],
    )
    def test_what_a_server_sends_around_the_content_is_not_content(self, stream: bytes) -> None:
        assert not observed(stream).first_content

    def test_it_turns_true_with_the_chunk_that_completes_the_first_content_event(self) -> None:
        observer = SseObserver()
        observer.feed(b": keep-alive\n\n" + data(ROLE))
        assert not observer.first_content
        event = data(TOKEN)
        observer.feed(event[:-1])
        assert not observer.first_content
        observer.feed(event[-1:])
        assert observer.first_content


class TestUsage:
    def test_the_final_event_of_a_chat_stream_gives_it(self) -> None:
        observer = observed(data(ROLE), data(TOKEN), data(CHAT_USAGE), b"data: [DONE]\n\n")
        assert observer.usage == Usage(2048, 2032, 7)

    def test_the_last_of_several_counts(self) -> None:
        first = {**TOKEN, "usage": {"prompt_tokens": 10, "completion_tokens": 1}}
        last = {**TOKEN, "usage": {"prompt_tokens": 10, "completion_tokens": 2}}
        assert observed(data(first), data(last)).usage == Usage(10, None, 2)

    def test_null_does_not_wipe_out_what_was_seen(self) -> None:
        observer = observed(data(TOKEN), data(CHAT_USAGE), data({**TOKEN, "usage": None}))
        assert observer.usage == Usage(2048, 2032, 7)

    def test_the_responses_api_nests_it_in_the_completed_response(self) -> None:
        usage = {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 96},
            "output_tokens": 3,
        }
        response = {"id": "resp_1", "object": "response", "usage": usage}
        observer = observed(
            named("response.output_text.delta", {"delta": "Hello"}),
            named("response.completed", {"response": response}),
        )
        assert observer.usage == Usage(100, 96, 3)

    @pytest.mark.parametrize(
        ("start", "delta"),
        [
            ({"input_tokens": 4, "cache_read_input_tokens": 96}, {"output_tokens": 3}),
            (
                {"input_tokens": 100, "output_tokens": 0},
                {
                    "input_tokens": 4,
                    "cache_read_input_tokens": 96,
                    "cache_creation_input_tokens": 0,
                    "output_tokens": 3,
                },
            ),
        ],
        ids=["cache counts at the start", "cache counts at the end"],
    )
    def test_anthropic_splits_it_over_two_events(self, start: dict[str, int], delta: dict[str, int]) -> None:
        observer = observed(
            named("message_start", {"message": {"type": "message", "usage": start}}),
            named("content_block_delta", {"delta": {"type": "text_delta", "text": "Hello"}}),
            named("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": delta}),
        )
        assert observer.usage == Usage(100, 96, 3)

    def test_there_is_none_in_a_stream_that_does_not_report_it(self) -> None:
        assert observed(data(TOKEN), b"data: [DONE]\n\n").usage is None

    @pytest.mark.parametrize("bad", [17, "many", [], {"prompt_tokens": -1}, {"prompt_tokens": "9"}])
    def test_a_strange_one_is_ignored_and_spoils_nothing_else(self, bad: object) -> None:
        observer = observed(data({**TOKEN, "usage": bad}))
        assert observer.usage is None
        assert observer.first_content


class TestTerminal:
    @pytest.mark.parametrize(
        "stream",
        [
            b"data: [DONE]\n\n",
            b"data:[DONE]\n\n",
            b"data: [DONE] \n\n",
            b"data: [DONE]\r\n\r\n",
            b"data: [DONE]\r\r",
            b"data: [DONE]",
            data({"type": "message_stop"}),
            b"event: message_stop\ndata: {}\n\n",
            named("response.completed", {"response": {}}),
            named("response.incomplete", {"response": {}}),
            named("response.failed", {"response": {}}),
        ],
    )
    @pytest.mark.parametrize("before", [b"", data(TOKEN)], ids=["at once", "after content"])
    def test_the_event_that_ends_a_stream_is_recognised(self, before: bytes, stream: bytes) -> None:
        assert observed(before, stream).terminal

    @pytest.mark.parametrize(
        "text", ["data: [DONE]", "\ndata: [DONE]\n\n", "\r\ndata: [DONE]\r\n\r\n", '{"type": "message_stop"}']
    )
    def test_generated_text_that_looks_like_one_is_not_one(self, text: str) -> None:
        observer = observed(data(TOKEN), data({"choices": [{"delta": {"content": text}}]}))
        assert not observer.terminal

    @pytest.mark.parametrize("line", [b": data: [DONE]", b"xdata: [DONE]", b" data: [DONE]", b"id: [DONE]"])
    def test_it_must_be_a_data_line(self, line: bytes) -> None:
        assert not observed(data(TOKEN), line + b"\n\n").terminal

    def test_life_goes_on_until_it_comes(self) -> None:
        observer = observed(
            named("response.created", {"response": {"id": "resp_1", "object": "response"}}),
            named("response.output_text.delta", {"delta": "Hello"}),
        )
        assert not observer.terminal


class TestError:
    @pytest.mark.parametrize(
        "stream",
        [
            data({"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}}),
            b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n',
            b"event: error\ndata: {}\n\n",
            data({"type": "error", "code": "server_error", "message": "x"}),
            named("response.failed", {"response": {"error": {"code": "server_error"}}}),
        ],
    )
    @pytest.mark.parametrize("before", [b"", data(TOKEN)], ids=["at once", "after content"])
    def test_an_error_inside_the_stream_is_seen(self, before: bytes, stream: bytes) -> None:
        assert observed(before, stream).error

    @pytest.mark.parametrize(
        "event",
        [
            {"choices": [{"delta": {"content": 'an "error" occurred'}}]},
            {"choices": [{"delta": {"content": '{"error": {"message": "x"}}'}}]},
            {**TOKEN, "error": None},
        ],
    )
    def test_text_about_errors_is_none(self, event: dict[str, Any]) -> None:
        assert not observed(data(TOKEN), data(event)).error


class TestResponseId:
    def test_the_first_event_of_a_response_names_it(self) -> None:
        response = {"id": "resp_6a1f", "object": "response", "status": "in_progress"}
        assert observed(named("response.created", {"response": response})).response_id == "resp_6a1f"

    def test_the_completed_response_names_it_too(self) -> None:
        observer = observed(
            named("response.output_text.delta", {"delta": "Hello"}),
            named("response.completed", {"response": {"id": "resp_6a1f", "object": "response"}}),
        )
        assert observer.response_id == "resp_6a1f"

    def test_a_later_event_without_an_id_does_not_wipe_it_out(self) -> None:
        observer = observed(
            named("response.created", {"response": {"id": "resp_6a1f", "object": "response"}}),
            named("response.completed", {"response": {"object": "response"}}),
        )
        assert observer.response_id == "resp_6a1f"

    def test_ids_of_other_apis_cannot_be_continued(self) -> None:
        observer = observed(
            data({"id": "chatcmpl-1", **TOKEN}),
            named("message_start", {"message": {"id": "msg_1", "type": "message"}}),
        )
        assert observer.response_id is None


class TestGrammar:
    def test_data_may_be_spread_over_several_lines(self) -> None:
        lines = json.dumps(CHAT_USAGE, indent=1).encode().split(b"\n")
        stream = b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"
        assert observed(data(TOKEN), stream).usage == Usage(2048, 2032, 7)

    @pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
    def test_every_line_end_and_every_split_gives_the_same(self, line_end: bytes) -> None:
        stream = (
            b": keep-alive\n\n"
            + data(ROLE)
            + data(TOKEN)
            + b"event: ping\ndata: {}\n\n"
            + data({"choices": [{"delta": {"content": 'data: [DONE] and "usage"'}}]})
            + b"data: {\ndata:" + json.dumps(CHAT_USAGE).encode()[1:] + b"\n\n"
            + b"data: [DONE]\n\n"
        ).replace(b"\n", line_end)  # fmt: skip
        expected = (True, True, False, Usage(2048, 2032, 7), None)
        assert state(observed(stream)) == expected
        for offset in range(len(stream) + 1):
            assert state(observed(stream[:offset], stream[offset:])) == expected, offset
        assert state(observed(*(stream[i : i + 1] for i in range(len(stream))))) == expected

    def test_chunks_of_many_events_that_begin_and_end_inside_one_lose_nothing(self) -> None:
        stream = data(TOKEN) * 50 + data(CHAT_USAGE) + data(TOKEN) * 50 + b"data: [DONE]\n\n"
        for size in (7, 90, 150, 1000):
            chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
            assert state(observed(*chunks)) == (True, True, False, Usage(2048, 2032, 7), None)


class TestGarbage:
    @pytest.mark.parametrize(
        "stream",
        [
            b"data: {\n\n",
            b"data: [1, 2\n\n",
            b'data: {"type": 5}\n\n',
            b'data: {"choices": {"a": 1}}\n\n',
            b'data: {"type": "\xff\xfe"}\n\n',
            b"data: \xff\xfe\n\n",
            b"event: \xff\xfe\ndata: {}\n\n",
            b'data: {"x": ' + b"[" * 100_000 + b"\n\n",
            b'data: {"response": {"id": 5, "object": "response"}}\n\n',
            b'data: {"response": "x", "message": "y"}\n\n',
            b"data\n\n",
            b"<html>\n<body>Bad gateway</body></html>",
        ],
    )
    def test_it_is_passed_over_and_the_stream_read_on(self, stream: bytes) -> None:
        assert state(observed(stream)) == (False, False, False, None, None)
        after = observed(stream + b"\n\n", data(TOKEN), data(CHAT_USAGE), b"data: [DONE]\n\n")
        assert state(after) == (True, True, False, Usage(2048, 2032, 7), None)


class TestBounds:
    def test_an_event_with_a_line_over_the_limit_is_passed_over_whole_however_it_is_split(self) -> None:
        long = data({"choices": [{"delta": {"content": "x" * 300}}], "usage": {"prompt_tokens": 1}})
        for size in (1, 50, 10_000):
            chunks = [long[start : start + size] for start in range(0, len(long), size)]
            assert state(observed(*chunks, limit_bytes=200)) == (False, False, False, None, None)
            after = observed(*chunks, data(TOKEN), data(CHAT_USAGE), limit_bytes=200)
            assert state(after) == (True, False, False, Usage(2048, 2032, 7), None)

    @pytest.mark.parametrize(
        "stream",
        [
            b"data: [DONE]\n: " + b"x" * 300 + b"\n\n",
            b": " + b"x" * 300 + b"\ndata: [DONE]\n\n",
            b": " + b"x" * 300 + b"\r\ndata: [DONE]\r\n\r\n",
        ],
    )
    def test_a_line_over_the_limit_spoils_the_other_lines_of_its_event_only(self, stream: bytes) -> None:
        for size in (1, 7, 10_000):
            chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
            assert not observed(*chunks, limit_bytes=200).terminal
            assert observed(*chunks, b"data: [DONE]\n\n", limit_bytes=200).terminal

    @pytest.mark.parametrize(
        "chunks",
        [(b"data: " + b"x" * 300, b"x\n\n"), (b": " + b"x" * 300 + b"\n", b"\n\n")],
        ids=["in the middle of its line", "after its line"],
    )
    def test_an_event_over_the_limit_may_end_with_a_chunk_that_is_otherwise_passed_over(
        self, chunks: tuple[bytes, ...]
    ) -> None:
        assert observed(data(TOKEN), *chunks, b"data: [DONE]\n\n", limit_bytes=200).terminal

    def test_an_endless_line_ends_with_the_stream(self) -> None:
        observer = observed(data(TOKEN), b"data: ", *[b"x" * 100] * 50, limit_bytes=200)
        assert state(observer) == (True, False, False, None, None)

    def test_many_short_data_lines_add_up_even_empty_ones(self) -> None:
        for line in (b"data: 12345\n", b"data:\n"):
            stream = b"data: [DONE]\n" + line * 300 + b"\n"
            assert not observed(stream, limit_bytes=200).terminal
            assert observed(stream, b"data: [DONE]\n\n", limit_bytes=200).terminal

    @pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n", b"data:\n", b"event: " + b"y" * 90 + b"\n"])
    def test_memory_stays_within_the_limit_whatever_comes(self, piece: bytes) -> None:
        observer = SseObserver(limit_bytes=1000)
        observer.feed(data(TOKEN))
        for _ in range(1000):
            observer.feed(piece)
            held = len(observer._line) + sum(len(line) + 1 for line in observer._data) + len(observer._name)
            assert held <= 2 * 1000
