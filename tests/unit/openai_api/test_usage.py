from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.openai_api.usage import JsonUsageObserver, Usage, usage_of

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"message": {"role": "assistant", "content": 'He said "usage": {}'}}],
    "usage": {
        "prompt_tokens": 2048,
        "total_tokens": 2055,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2032},
    },
}


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def with_usage(usage: object) -> bytes:
    return body({"object": "x", "usage": usage})


def fed(*chunks: bytes, limit_bytes: int = 1024 * 1024) -> JsonUsageObserver:
    observer = JsonUsageObserver(limit_bytes)
    for chunk in chunks:
        observer.feed(chunk)
    observer.finish()
    return observer


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (CHAT["usage"], Usage(2048, 2032, 7)),
        ({"prompt_tokens": 9, "completion_tokens": 0}, Usage(9, None, 0)),
        ({"prompt_tokens": 9, "total_tokens": 9}, Usage(9, None, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None, "completion_tokens": 1}, Usage(9, None, 1)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(9, 0, None)),
        (
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 96}, "output_tokens": 3},
            Usage(100, 96, 3),
        ),
    ],
)
def test_openai_counts_include_the_cached_tokens(usage: object, expected: Usage) -> None:
    assert usage_of(with_usage(usage)) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 4, "cache_read_input_tokens": 96, "output_tokens": 3}, Usage(100, 96, 3)),
        (
            {"input_tokens": 4, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 6},
            Usage(100, 90, None),
        ),
        ({"input_tokens": 100, "output_tokens": 3}, Usage(100, None, 3)),
        ({"input_tokens": 100, "cache_read_input_tokens": 0, "output_tokens": 3}, Usage(100, 0, 3)),
        ({"cache_read_input_tokens": 96}, Usage(None, 96, None)),
    ],
)
def test_anthropic_counts_leave_them_out_so_they_are_added(usage: object, expected: Usage) -> None:
    assert usage_of(with_usage(usage)) == expected


def test_a_prompt_count_that_is_already_whole_is_never_added_to() -> None:
    usage = {"prompt_tokens": 100, "cache_read_input_tokens": 96}
    assert usage_of(with_usage(usage)) == Usage(100, 96, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"usage"',
        b"\xff\xfe",
        b"[" * 100_000,
        body({"choices": []}),
        with_usage(None),
        with_usage({}),
        with_usage([1]),
        with_usage({"prompt_tokens": -1}),
        with_usage({"prompt_tokens": 10**40}),
        with_usage({"prompt_tokens": True}),
        with_usage({"prompt_tokens": "9"}),
        with_usage({"prompt_tokens": 9, "prompt_tokens_details": "none"}),
        body({"choices": [{"usage": {"prompt_tokens": 9}}]}),
    ],
)
def test_a_body_without_usable_counts_gives_none_and_never_raises(content: bytes) -> None:
    assert usage_of(content) is None


def test_the_observer_reads_a_body_that_came_in_pieces() -> None:
    content = body(CHAT)
    observer = fed(*(content[i : i + 10] for i in range(0, len(content), 10)))
    assert observer.usage == Usage(2048, 2032, 7)
    assert (observer.first_content, observer.terminal, observer.error) == (False, False, False)


def test_the_observer_of_a_body_that_broke_off_knows_nothing() -> None:
    observer = fed(body(CHAT)[:-1])
    assert (observer.usage, observer.response_id) == (None, None)


def test_the_observer_gives_up_on_a_body_over_its_limit_and_keeps_nothing_of_it() -> None:
    content = body(CHAT)
    assert fed(content, limit_bytes=len(content)).usage is not None
    observer = JsonUsageObserver(limit_bytes=len(content) - 1)
    observer.feed(content[:50])
    observer.feed(content[50:])
    assert observer._chunks == []
    observer.feed(b" ")
    assert observer._chunks == []
    observer.finish()
    assert observer.usage is None


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"id": "resp_6a1f", "object": "response"}, "resp_6a1f"),
        ({"object": "response"}, None),
        ({"id": "", "object": "response"}, None),
        ({"id": 17, "object": "response"}, None),
        ({"id": "r" * 257, "object": "response"}, None),
        ({"id": "chatcmpl-1", "object": "chat.completion"}, None),
        ({"id": "msg_1", "type": "message"}, None),
    ],
)
def test_only_a_response_of_the_responses_api_has_an_id_to_continue(
    response: dict[str, Any], expected: str | None
) -> None:
    assert fed(body(response)).response_id == expected
