from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.openai_api.forwarded import Forwarded
from prefix_router.openai_api.headers import (
    HOP_BY_HOP,
    has_dot_segments,
    is_valid_request_id,
    origin_form,
    post_head,
    question_head,
    request_head,
)
from tests.support.header_lines import response_headers


def head(headers: list[tuple[bytes, bytes]], **changes: Any) -> list[bytes]:
    values: dict[str, Any] = {
        "host": b"backend:8000",
        "body_length": 2,
        "request_id": b"id-1",
        "client_address": b"10.1.2.3",
        "client_host": b"router.example",
        **changes,
    }
    method = values.pop("method", b"POST")
    return request_head(method, b"/v1/x?a=%20b", headers, **values).split(b"\r\n")


def test_the_request_line_carries_method_and_target_untouched() -> None:
    assert head([], method=b"PATCH")[0] == b"PATCH /v1/x?a=%20b HTTP/1.1"


def test_headers_of_the_router_take_the_place_of_those_that_end_here() -> None:
    sent = [(b"TraceParent", b"1"), (b"x-a", b"2"), (b"tracestate", b"3")]
    lines = head(sent, named=frozenset({b"traceparent", b"tracestate"}), added=b"traceparent: mine\r\n")
    assert [line for line in lines if b"race" in line] == [b"traceparent: mine"]
    assert b"x-a: 2" in lines
    assert lines[-2:] == [b"", b""]


def test_end_to_end_headers_pass_in_order_and_spelling() -> None:
    sent = [(b"AUTHORIZATION", b"Bearer \xff"), (b"x-a", b"1"), (b"X-A", b"2"), (b"Cookie", b"c=d; e=f")]
    lines = head(sent)
    assert [line for line in lines if line in [b"%b: %b" % pair for pair in sent]] == [
        b"%b: %b" % pair for pair in sent
    ]


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_hop_by_hop_headers_end_here(name: bytes) -> None:
    assert not any(
        line.lower().startswith(name + b":") for line in head([(name.title(), b"x")], body_length=2)
    )
    assert response_headers([(name.title(), b"x")]) == []


def test_headers_named_by_connection_end_here() -> None:
    sent = [(b"Connection", b"close, X-Private"), (b"x-private", b"1"), (b"x-public", b"2")]
    assert b"x-public: 2" in head(sent)
    assert not any(line.lower().startswith(b"x-private") for line in head(sent))
    assert response_headers(sent) == [(b"x-public", b"2")]


def test_host_is_the_backends_and_the_clients_is_told() -> None:
    lines = head([(b"Host", b"router.example")])
    assert [line for line in lines if line.lower().startswith(b"host:")] == [b"Host: backend:8000"]
    assert b"X-Forwarded-Host: router.example" in lines


def test_forwarded_headers_are_extended_not_repeated() -> None:
    lines = head(
        [
            (b"X-Forwarded-For", b"1.1.1.1"),
            (b"x-forwarded-for", b"2.2.2.2"),
            (b"X-Forwarded-Proto", b"https"),
            (b"X-Forwarded-Host", b"public.example"),
        ]
    )
    assert b"X-Forwarded-For: 1.1.1.1, 2.2.2.2, 10.1.2.3" in lines
    assert b"X-Forwarded-Proto: https" in lines
    assert b"X-Forwarded-Host: public.example" in lines
    assert sum(line.lower().startswith(b"x-forwarded") for line in lines) == 3


@pytest.mark.parametrize(
    ("method", "length", "framing"),
    [
        (b"POST", 2, [b"Content-Length: 2"]),
        (b"POST", 0, [b"Content-Length: 0"]),
        (b"GET", 0, []),
        (b"GET", 5, [b"Content-Length: 5"]),
        (b"POST", None, [b"Transfer-Encoding: chunked"]),
    ],
)
def test_there_is_exactly_one_framing(method: bytes, length: int | None, framing: list[bytes]) -> None:
    sent = [(b"Content-Length", b"77"), (b"Transfer-Encoding", b"chunked"), (b"Expect", b"100-continue")]
    lines = head(sent, method=method, body_length=length)
    names = (b"content-length", b"transfer-encoding", b"expect")
    assert [line for line in lines if line.lower().startswith(names)] == framing


def test_the_request_id_is_the_routers() -> None:
    lines = head([(b"X-Request-ID", b"other")])
    assert [line for line in lines if line.lower().startswith(b"x-request-id")] == [b"X-Request-Id: id-1"]


def test_responses_keep_everything_but_framing_and_the_routers_own_names() -> None:
    sent = [
        (b"Content-Type", b"text/event-stream"),
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"Date", b"d"),
        (b"Server", b"uvicorn"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-Length", b"3"),
        (b"x-prefix-router-backend", b"forged"),
        (b"X-Request-Id", b"other"),
    ]
    assert response_headers(sent) == sent[:6]


@pytest.mark.parametrize(
    ("target", "origin"),
    [
        (b"/a?b", b"/a?b"),
        (b"*", b"*"),
        (b"http://h/a?b", b"/a?b"),
        (b"http://h:1", b"/"),
        (b"http://h?q=http://x/y", b"/?q=http://x/y"),
        (b"HTTPS://h/", b"/"),
        (b"odd", b"/odd"),
    ],
)
def test_the_target_becomes_path_and_query(target: bytes, origin: bytes) -> None:
    assert origin_form(target) == origin


@pytest.mark.parametrize(
    ("target", "climbs"),
    [
        (b"/v1/../admin", True),
        (b"/..", True),
        (b"/v1/%2E%2e/admin", True),
        (b"/v1/.%2e%2fadmin", True),
        (b"/v1/./x", True),
        (b"/v1\\..\\x", True),
        (b"/v1/models/my..model", False),
        (b"/v1/x?path=../y", False),
        (b"/.well-known/x", False),
    ],
)
def test_a_path_that_climbs_is_recognised(target: bytes, climbs: bool) -> None:
    assert has_dot_segments(target) is climbs


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("abc-1", True),
        ("x" * 128, True),
        ("", False),
        ("x" * 129, False),
        ("a b", False),
        ("a\tb", False),
        ("ä", False),
    ],
)
def test_request_ids_are_short_visible_ascii(value: str, valid: bool) -> None:
    assert is_valid_request_id(value) is valid


_TOKEN = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True)
_VALUE = st.from_regex(rb"[!-~]{0,20}", fullmatch=True)


@given(st.lists(st.tuples(_TOKEN, _VALUE), max_size=12))
def test_a_request_never_carries_two_framings_or_hosts(headers: list[tuple[bytes, bytes]]) -> None:
    names = [line.partition(b":")[0].lower() for line in head(headers)[1:-2]]
    assert names.count(b"host") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") == 1
    assert not HOP_BY_HOP & set(names)


KEYS = [(b"Authorization", b"Bearer client"), (b"X-API-Key", b"client"), (b"api-key", b"client")]


def test_keys_of_clients_pass_unless_they_end_here() -> None:
    assert [line for line in head(KEYS) if b"client" in line and b":" in line] == [
        b"Authorization: Bearer client",
        b"X-API-Key: client",
        b"api-key: client",
    ]
    assert not any(b": client" in line or b"Bearer" in line for line in head(KEYS, authorization=b""))


def test_a_backends_own_login_takes_the_place_of_the_clients() -> None:
    lines = head(KEYS, authorization=b"Bearer own")
    assert [line for line in lines if line.lower().startswith(b"authorization")] == [
        b"Authorization: Bearer own"
    ]
    assert not any(b"client" in line for line in lines)


def test_what_has_been_judged_replaces_what_was_said() -> None:
    said = [
        (b"X-Forwarded-For", b"1.1.1.1"),
        (b"X-Forwarded-Proto", b"http"),
        (b"Forwarded", b"for=1.1.1.1"),
        (b"X-Real-IP", b"1.1.1.1"),
        (b"X-Forwarded-Port", b"443"),
    ]
    judged = Forwarded("203.0.113.9", b"203.0.113.9, 10.0.0.1", b"https", b"api.example")
    lines = head(said, forwarded=judged)
    assert b"X-Forwarded-For: 203.0.113.9, 10.0.0.1" in lines
    assert b"X-Forwarded-Proto: https" in lines
    assert b"X-Forwarded-Host: api.example" in lines
    assert b"X-Forwarded-Port: 443" in lines
    assert not any(b"1.1.1.1" in line for line in lines)


def test_the_routers_own_questions_log_in_where_they_must() -> None:
    plain = question_head(b"/health", b"h:1")
    assert plain == (
        b"GET /health HTTP/1.1\r\nHost: h:1\r\nUser-Agent: prefix-router\r\nConnection: close\r\n\r\n"
    )
    assert b"\r\nAuthorization: Bearer k\r\n" in question_head(b"/health", b"h:1", b"Bearer k")


def test_a_post_of_the_router_itself_says_how_long_its_json_is() -> None:
    assert post_head(b"/v1/completions", b"h:1", 12, b"Bearer k") == (
        b"POST /v1/completions HTTP/1.1\r\nHost: h:1\r\nUser-Agent: prefix-router\r\n"
        b"Content-Type: application/json\r\nContent-Length: 12\r\nAuthorization: Bearer k\r\n"
        b"Connection: close\r\n\r\n"
    )
