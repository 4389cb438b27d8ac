from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.openai_api.forwarded import MAX_HOPS, Forwarded, TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"])
FOR, PROTO, HOST, FORWARDED = b"X-Forwarded-For", b"x-forwarded-proto", b"X-Forwarded-Host", b"Forwarded"


def judge(peer: str, *headers: tuple[bytes, bytes]) -> Forwarded:
    return PROXIES.judge(peer, headers, scheme=b"http", host=b"router.internal")


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("::ffff:10.0.0.1", True),
        ("fe80::1%eth0", False),
        ("", False),
        ("unknown", False),
    ],
)
def test_who_is_trusted(address: str, trusted: bool) -> None:
    assert PROXIES.trusts(address) is trusted
    assert not TrustedProxies([]).trusts(address)


def test_what_a_stranger_says_of_itself_is_dropped() -> None:
    said = judge(
        "203.0.113.9", (FOR, b"1.1.1.1"), (PROTO, b"https"), (HOST, b"x"), (FORWARDED, b"for=1.1.1.1")
    )
    assert said == Forwarded("203.0.113.9", b"203.0.113.9", b"http", b"router.internal")


@pytest.mark.parametrize(
    ("headers", "client", "chain"),
    [
        ([], "10.0.0.1", b"10.0.0.1"),
        ([b"203.0.113.9"], "203.0.113.9", b"203.0.113.9, 10.0.0.1"),
        ([b"1.1.1.1, 203.0.113.9"], "203.0.113.9", b"203.0.113.9, 10.0.0.1"),
        ([b"203.0.113.9, 10.0.0.7"], "203.0.113.9", b"203.0.113.9, 10.0.0.7, 10.0.0.1"),
        ([b"1.1.1.1", b"203.0.113.9,10.0.0.7"], "203.0.113.9", b"203.0.113.9, 10.0.0.7, 10.0.0.1"),
        ([b"10.0.0.8, 10.0.0.7"], "10.0.0.8", b"10.0.0.8, 10.0.0.7, 10.0.0.1"),
        ([b"203.0.113.9:55001"], "203.0.113.9", b"203.0.113.9, 10.0.0.1"),
        ([b"[2001:db9::7]:443"], "2001:db9::7", b"2001:db9::7, 10.0.0.1"),
        ([b"2001:db9::7"], "2001:db9::7", b"2001:db9::7, 10.0.0.1"),
        ([b"1.1.1.1, unknown"], "10.0.0.1", b"10.0.0.1"),
        ([b"1.1.1.1, evil\xff"], "10.0.0.1", b"10.0.0.1"),
        ([b""], "10.0.0.1", b"10.0.0.1"),
    ],
)
def test_the_list_is_walked_from_the_right_over_trusted_proxies(
    headers: list[bytes], client: str, chain: bytes
) -> None:
    said = judge("10.0.0.1", *((FOR, value) for value in headers))
    assert (said.address, said.chain) == (client, chain)


def test_scheme_and_host_are_those_of_the_nearest_proxy() -> None:
    said = judge("10.0.0.1", (FOR, b"203.0.113.9"), (PROTO, b"http, https"), (HOST, b"api.example.org"))
    assert (said.scheme, said.host) == (b"https", b"api.example.org")
    odd = judge("10.0.0.1", (PROTO, b"gopher"), (HOST, b"a b"))
    assert (odd.scheme, odd.host) == (b"http", b"router.internal")


@pytest.mark.parametrize(
    ("value", "client", "scheme", "host"),
    [
        (b"for=203.0.113.9", "203.0.113.9", b"http", b"router.internal"),
        (
            b"for=1.1.1.1, For=203.0.113.9;proto=https;host=api.example",
            "203.0.113.9",
            b"https",
            b"api.example",
        ),
        (b'for="[2001:db9::7]:47011"; proto="https"', "2001:db9::7", b"https", b"router.internal"),
        (b'for="203.0.113.9:80", for=10.0.0.4', "203.0.113.9", b"http", b"router.internal"),
        (b"for=_hidden, for=unknown", "10.0.0.1", b"http", b"router.internal"),
        (b'for="203.0.113.9', "10.0.0.1", b"http", b"router.internal"),
        (b";;,,==", "10.0.0.1", b"http", b"router.internal"),
    ],
)
def test_the_standard_header_says_the_same_in_other_words(
    value: bytes, client: str, scheme: bytes, host: bytes
) -> None:
    said = judge("10.0.0.1", (FORWARDED, value))
    assert (said.address, said.scheme, said.host) == (client, scheme, host)


def test_the_older_header_wins_where_both_are_sent() -> None:
    said = judge("10.0.0.1", (FORWARDED, b"for=1.1.1.1"), (FOR, b"203.0.113.9"))
    assert said.address == "203.0.113.9"


def test_a_list_without_end_is_not_followed_without_end() -> None:
    said = judge("10.0.0.1", (FOR, b", ".join([b"10.0.0.2"] * 5000)))
    assert said.chain.count(b"10.0.0.2") == MAX_HOPS


@given(
    st.lists(st.tuples(st.sampled_from([FOR, PROTO, HOST, FORWARDED]), st.binary(max_size=60)), max_size=6)
)
def test_no_bytes_make_it_fail_or_get_into_a_header(headers: list[tuple[bytes, bytes]]) -> None:
    said = judge("10.0.0.1", *headers)
    assert said.chain.endswith(b"10.0.0.1")
    assert said.chain.translate(None, b"0123456789abcdef.:, ") == b""
    assert said.scheme in (b"http", b"https")
    assert b"\n" not in (said.host or b"")
