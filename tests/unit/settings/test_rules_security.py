from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prefix_router.settings.load import load_text
from tests.support.certificates import Authority

Mistakes = Callable[..., list[str]]

BACKEND = "backends: [{url: 'https://10.0.0.1', server_name: engine.internal}]\n"
NETWORK = "expected an IP address or a network such as 10.0.0.0/8"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_files_that_fit_are_taken(authority: Authority) -> None:
    files = authority.issue("a", "a.example")
    tls = f"{{certificate: {files.certificate}, key: {files.key}"
    text = f"{BACKEND}listen: {{tls: {tls}, client_ca: {authority.path}}}}}\nadmin: {{tls: {tls}}}}}\n"
    text += f"backend_tls: {tls}, ca: {authority.path}}}\n"
    settings = load_text(text, "x.yaml", {})
    assert settings.listen.tls.certificate == str(files.certificate)


@pytest.mark.parametrize("section", ["listen.tls", "admin.tls", "backend_tls"])
@pytest.mark.parametrize(("given", "needed"), [("certificate", "key"), ("key", "certificate")])
def test_a_certificate_and_its_key_need_each_other(
    mistakes: Mistakes, authority: Authority, section: str, given: str, needed: str
) -> None:
    path = getattr(authority.issue("a", "a.example"), given)
    inner = f"{{{given}: {path}}}"
    text = f"backend_tls: {inner}" if section == "backend_tls" else f"{section[:-4]}: {{tls: {inner}}}"
    assert mistakes(BACKEND + text) == [f"x.yaml:2: {section}.{given}: needs {section}.{needed}"]


@pytest.mark.parametrize("section", ["listen", "admin"])
def test_a_key_of_another_certificate_is_told_at_its_line(
    mistakes: Mistakes, authority: Authority, section: str
) -> None:
    one, other = authority.issue("one", "a.example"), authority.issue("other", "a.example")
    text = f"{section}:\n  tls:\n    certificate: {one.certificate}\n    key: {other.key}\n"
    (mistake,) = mistakes(BACKEND + text)
    assert mistake == (
        f"x.yaml:5: {section}.tls.key: {other.key} does not belong to the certificate {one.certificate}"
    )


def test_files_that_are_not_there_are_told(mistakes: Mistakes) -> None:
    assert mistakes(BACKEND + "backend_tls: {ca: /none/ca.pem}") == [
        "x.yaml:2: backend_tls.ca: /none/ca.pem cannot be read: No such file or directory"
    ]
    assert mistakes(BACKEND + "listen: {tls: {certificate: /none/a.crt, key: /none/a.key}}") == [
        "x.yaml:2: listen.tls.certificate: /none/a.crt cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "listen: {tls: {client_ca: /x}}",
            "listen.tls.client_ca: expected null without a certificate: plain HTTP",
        ),
        (
            "backend_tls: {ca: CA, verify: false}",
            "backend_tls.ca: expected null with verify false: nobody is checked",
        ),
        (
            "listen: {trusted_proxies: [10.0.0.0/33]}",
            f"listen.trusted_proxies[0]: {NETWORK}, got 10.0.0.0/33",
        ),
        (
            "listen: {trusted_proxies: [gateway]}",
            f'listen.trusted_proxies[0]: {NETWORK}, got "gateway"',
        ),
        (
            "listen: {cors: {allow_origins: ['https://a.example/path']}}",
            (
                "listen.cors.allow_origins[0]: expected an origin such as https://app.example.org, without a "
                'path, or *, got "https://a.example/path"'
            ),
        ),
    ],
)
def test_what_cannot_be_meant(mistakes: Mistakes, authority: Authority, text: str, mistake: str) -> None:
    assert mistakes(BACKEND + text.replace("CA", str(authority.path))) == [f"x.yaml:2: {mistake}"]


@pytest.mark.parametrize(
    ("backend", "mistake"),
    [
        (
            "{url: 'http://h:1', server_name: h.example}",
            "expected null with an http:// URL: there is no certificate to check",
        ),
        ("{url: 'https://h:1', server_name: a..b}", "expected a host name or an IP address, got a..b"),
        ("{url: 'https://h:1', server_name: .b}", "expected a host name or an IP address, got .b"),
    ],
)
def test_a_server_name_is_one_that_tls_takes(mistakes: Mistakes, backend: str, mistake: str) -> None:
    assert mistakes(f"backends: [{backend}]") == [f"x.yaml:1: backends[0].server_name: {mistake}"]


def test_a_login_may_come_from_the_environment() -> None:
    text = 'backends: [{url: h:1, authorization: "Bearer ${KEY}"}]'
    assert load_text(text, "x.yaml", {"KEY": "k"}).backends[0].authorization == "Bearer k"
