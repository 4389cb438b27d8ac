from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.settings.backend_url import BackendUrlError, host_port, parse_backend_url


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("http://10.0.0.1:8000", "http://10.0.0.1:8000", "10.0.0.1:8000"),
        ("10.0.0.1:8000", "http://10.0.0.1:8000", "10.0.0.1:8000"),
        ("vllm-0.vllm:8000", "http://vllm-0.vllm:8000", "vllm-0.vllm:8000"),
        ("localhost", "http://localhost", "localhost:80"),
        ("http://h:80", "http://h", "h:80"),
        ("https://h", "https://h", "h:443"),
        ("https://h:443/", "https://h", "h:443"),
        ("https://h:80", "https://h:80", "h:80"),
        ("HTTP://Host.Example:8000", "http://host.example:8000", "host.example:8000"),
        ("http://h:8000/", "http://h:8000", "h:8000"),
        ("http://h:8000/v1", "http://h:8000", "h:8000"),
        ("http://h:8000/v1/", "http://h:8000", "h:8000"),
        ("http://h:8000//v1//", "http://h:8000", "h:8000"),
        ("h:8000/v1", "http://h:8000", "h:8000"),
        ("http://h:8000/a/b/", "http://h:8000/a/b", "h:8000"),
        ("http://h:8000/a/v1/", "http://h:8000/a", "h:8000"),
        ("http://h:8000/v1/v1", "http://h:8000", "h:8000"),
        ("http://h:8000/v1/a", "http://h:8000/v1/a", "h:8000"),
        ("http://h:8000/av1", "http://h:8000/av1", "h:8000"),
        ("http://h:8000/a%2Fb", "http://h:8000/a%2Fb", "h:8000"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("[::1]:8000/v1", "http://[::1]:8000", "[::1]:8000"),
        ("[2001:DB8:0:0::1]:8000", "http://[2001:db8::1]:8000", "[2001:db8::1]:8000"),
        ("http://[fd00::2]", "http://[fd00::2]", "[fd00::2]:80"),
    ],
)
def test_what_people_write_becomes_one_form(text: str, url: str, name: str) -> None:
    parsed = parse_backend_url(text)
    assert (str(parsed), parsed.authority) == (url, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://h:1", "expected http:// or https:// before the host"),
        ("unix:///run/vllm.sock", "expected http:// or https:// before the host"),
        ("http://", "expected a host"),
        ("http:///path", "expected a host"),
        (":8000", "expected a host"),
        ("http://h:8000?a=b", "expected nothing after the path: no query (?) and no fragment (#)"),
        ("http://h:8000/#top", "expected nothing after the path: no query (?) and no fragment (#)"),
        ("http://user:secret@h:8000", "expected no user name or password before the host"),
        ("http://::1:8000", "expected host:port, with an IPv6 address in brackets: http://[::1]:8000"),
        ("::1", "expected host:port, with an IPv6 address in brackets: http://[::1]:8000"),
        ("http://[::1]x:8000", "expected host:port, with an IPv6 address in brackets: http://[::1]:8000"),
        ("http://h:80a", "expected host:port, with an IPv6 address in brackets: http://[::1]:8000"),
        ("http://[10.0.0.1]:80", "expected an IPv6 address between [ and ], got [10.0.0.1]"),
        ("http://[fe80::1%eth0]:80", "expected an IPv6 address without a zone (%)"),
        ("http://10.0.0.256:80", "expected an IPv4 address of four numbers, got 10.0.0.256"),
        ("http://10.0.1:80", "expected an IPv4 address of four numbers, got 10.0.1"),
        ("http://a..b:80", "expected a host name or an IP address, got a..b"),
        ("http://-a:80", "expected a host name or an IP address, got -a"),
        ("http://h:0", "expected a port from 1 to 65535 after the host"),
        ("http://h:65536", "expected a port from 1 to 65535 after the host"),
        (f"http://h:{'9' * 5000}", "expected a port from 1 to 65535 after the host"),
        ("http://h:", "expected a port from 1 to 65535 after the host"),
        ("http://h/a/../b", "expected a path prefix of plain segments, such as /replica-1"),
        ("http://h/a\\b", "expected a path prefix of plain segments, such as /replica-1"),
        (
            "http://h /",
            "expected printable ASCII without spaces (write a host name in its xn-- form)",
        ),
        (
            "http://h:1\n",
            "expected printable ASCII without spaces (write a host name in its xn-- form)",
        ),
        (
            "http://bücher:1",
            "expected printable ASCII without spaces (write a host name in its xn-- form)",
        ),
    ],
)
def test_what_is_no_backend_is_refused_with_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(BackendUrlError) as caught:
        parse_backend_url(text)
    assert str(caught.value) == message


@given(st.text(alphabet="abv1:/.@?#[]%-_http", max_size=30))
def test_any_text_is_either_normalised_for_good_or_refused(text: str) -> None:
    try:
        parsed = parse_backend_url(text)
    except BackendUrlError:
        return
    assert parse_backend_url(str(parsed)) == parsed
    assert not parsed.path.endswith(("/", "/v1"))


def test_only_an_ipv6_address_gets_brackets() -> None:
    assert host_port("::1", 8000) == "[::1]:8000"
    assert host_port("10.0.0.1", 8000) == "10.0.0.1:8000"
