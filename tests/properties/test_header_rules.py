"""What passes a proxy and what ends there, for any headers that a parser can let through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefix_router.openai_api.headers import (
    HOP_BY_HOP,
    ROUTER_HEADERS,
    origin_form,
    request_head,
)
from tests.support.header_lines import response_headers

OWN_UPSTREAM = {
    b"host",
    b"content-length",
    b"expect",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-request-id",
}
KNOWN = sorted({*HOP_BY_HOP, *OWN_UPSTREAM, *ROUTER_HEADERS, b"authorization", b"cookie", b"accept", b"x-a"})

_token_bytes = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
tokens = st.lists(st.sampled_from(_token_bytes), min_size=1, max_size=12).map(bytes)


@st.composite
def spelled(draw: st.DrawFn, name: bytes) -> bytes:
    """A name in any mixture of cases."""
    return bytes(draw(st.sampled_from([byte, ord(chr(byte).upper())])) for byte in name)


names = st.sampled_from(KNOWN).flatmap(spelled) | tokens
values = st.binary(max_size=20).map(
    lambda value: bytes(byte for byte in value if byte not in b"\r\n\0").strip(b" \t")
)
listed = st.lists(names, max_size=3).map(b", ".join)


@st.composite
def headers(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Headers in any order, repeats and all, with `Connection` headers that name some of them."""
    plain = draw(st.lists(st.tuples(names, values), max_size=10))
    naming = draw(st.lists(st.tuples(spelled(b"connection"), listed), max_size=2))
    return draw(st.permutations(plain + naming))


def named_by_connection(sent: list[tuple[bytes, bytes]]) -> set[bytes]:
    lists = [value for name, value in sent if name.lower() == b"connection"]
    return {token.strip().lower() for value in lists for token in value.split(b",")}


def head_lines(sent: list[tuple[bytes, bytes]], length: int | None = 2) -> list[tuple[bytes, bytes]]:
    """The headers that a backend gets, as a strict parser would read them."""
    head = request_head(
        b"POST",
        b"/v1/x",
        sent,
        host=b"backend:8000",
        body_length=length,
        request_id=b"id",
        client_address=b"10.0.0.9",
        client_host=b"router.example",
    )
    assert head.endswith(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    assert first == b"POST /v1/x HTTP/1.1"
    pairs = []
    for line in lines:
        name, colon, value = line.partition(b": ")
        assert colon, line
        pairs.append((name, value))
    return pairs


@given(headers())
def test_end_to_end_headers_reach_the_backend_in_order_and_nothing_else_does(
    sent: list[tuple[bytes, bytes]],
) -> None:
    ending = HOP_BY_HOP | OWN_UPSTREAM | named_by_connection(sent)
    passed = [pair for pair in sent if pair[0].lower() not in ending]
    received = head_lines(sent)
    own = OWN_UPSTREAM | {b"transfer-encoding"}
    assert [pair for pair in received if pair[0].lower() not in own] == passed


@given(headers(), st.none() | st.integers(0, 10**9))
def test_a_backend_gets_one_framing_one_host_and_one_request_id(
    sent: list[tuple[bytes, bytes]], length: int | None
) -> None:
    received = head_lines(sent, length)
    names_received = [name.lower() for name, _ in received]
    framing = [pair for pair in received if pair[0].lower() in (b"content-length", b"transfer-encoding")]
    assert framing == [
        (b"Transfer-Encoding", b"chunked") if length is None else (b"Content-Length", b"%d" % length)
    ]
    assert [value for name, value in received if name.lower() == b"host"] == [b"backend:8000"]
    assert [value for name, value in received if name.lower() == b"x-request-id"] == [b"id"]
    for once in (b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"):
        assert names_received.count(once) == 1


@given(headers())
def test_the_chain_of_forwarders_is_kept_and_ends_with_the_client(sent: list[tuple[bytes, bytes]]) -> None:
    chain = [value for name, value in sent if name.lower() == b"x-forwarded-for" and value]
    received = dict(head_lines(sent))
    assert received[b"X-Forwarded-For"] == b", ".join([*chain, b"10.0.0.9"])


@given(headers())
def test_a_client_gets_the_end_to_end_headers_in_order_and_no_framing(
    sent: list[tuple[bytes, bytes]],
) -> None:
    ending = HOP_BY_HOP | ROUTER_HEADERS | {b"content-length"} | named_by_connection(sent)
    assert response_headers(sent) == [pair for pair in sent if pair[0].lower() not in ending]


@given(headers())
def test_passing_twice_is_passing_once(sent: list[tuple[bytes, bytes]]) -> None:
    once = response_headers(sent)
    assert response_headers(once) == once


@given(st.binary(max_size=40))
def test_a_target_always_becomes_a_path_so_nobody_but_a_backend_is_addressed(target: bytes) -> None:
    form = origin_form(target)
    assert form == b"*" or form.startswith(b"/")
    assert origin_form(form) == form


@given(tokens, st.binary(max_size=20).map(lambda rest: b"/" + rest.replace(b"\0", b"")))
def test_the_authority_of_an_absolute_target_is_dropped(host: bytes, path: bytes) -> None:
    assert origin_form(b"http://" + host + path) == path
