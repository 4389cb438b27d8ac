from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_router.analyze.bodies import read_body
from prefix_router.analyze.record import RecordedRequest, UnusableLineError

CHAT = {"messages": [{"role": "user", "content": "hello " * 100}]}


def read(value: Any, path: str | None = None) -> RecordedRequest:
    return read_body(json.dumps(value).encode(), path)


def test_a_plain_body_has_a_name_for_each_block() -> None:
    request = read(CHAT)
    assert len(request.names) == -(-request.tokens // 16)
    assert request.tokens > 150
    assert request.first_end.tokens == request.tokens
    assert request.seconds is None
    assert request.output_tokens is None


def test_bodies_that_begin_alike_share_their_first_names() -> None:
    one = read({"messages": [{"role": "user", "content": "x" * 1000 + "one"}]})
    other = read({"messages": [{"role": "user", "content": "x" * 1000 + "two"}]})
    assert one.names[:15] == other.names[:15]
    assert one.names[-1] != other.names[-1]


def test_an_envelope_adds_time_path_and_the_length_of_the_answer() -> None:
    plain = read({"prompt": "hello " * 100})
    envelope = {"body": {"prompt": "hello " * 100}, "timestamp": 12.5, "completion_tokens": 7}
    request = read({**envelope, "path": "/v1/completions?x=1"})
    assert request.names == plain.names
    assert (request.seconds, request.output_tokens) == (12.5, 7)


def test_a_body_may_be_kept_as_text_and_the_path_as_the_url_of_a_batch() -> None:
    request = read({"body": json.dumps(CHAT), "method": "POST", "url": "/v1/chat/completions"})
    assert request.names == read(CHAT).names


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (7, 7.0),
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        (1_700_000_000_500, 1_700_000_000.5),
        ("yesterday", None),
        (-1, None),
        (True, None),
        ([1], None),
        (None, None),
    ],
)
def test_a_time_is_seconds_milliseconds_or_iso(time: object, seconds: float | None) -> None:
    assert read({"body": CHAT, "timestamp": time}).seconds == seconds


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (CHAT, "/v1/chat/completions"),
        ({"system": "be kind", **CHAT}, "/v1/messages"),
        ({"prompt": "hello"}, "/v1/completions"),
        ({"input": "hello", "instructions": "be kind"}, "/v1/responses"),
    ],
)
def test_the_path_of_a_plain_body_is_told_by_its_fields(body: dict[str, Any], path: str) -> None:
    assert read(body).names == read(body, path).names


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_the_limit_of_the_answer_is_known(name: str) -> None:
    assert read({**CHAT, name: 50}).most_output_tokens == 50
    assert read({**CHAT, name: "many"}).most_output_tokens is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"hello", "not JSON"),
        (b'{"messages": [', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"body": "hello"}', "not JSON"),
        (b'{"body": 7}', "not a JSON object"),
        (b"{}", "no prompt that can be read"),
        (b'{"messages": [7]}', "no prompt that can be read"),
        (b'{"path": "/v1/embeddings", "body": {"input": "x"}}', "nothing is generated on its path"),
        (b'{"path": "/v1/audio", "body": {"input": "x"}}', "nothing is generated on its path"),
    ],
)
def test_a_line_that_is_no_request_says_why_without_its_text(line: bytes, cause: str) -> None:
    with pytest.raises(UnusableLineError) as caught:
        read_body(line)
    assert caught.value.cause == cause
