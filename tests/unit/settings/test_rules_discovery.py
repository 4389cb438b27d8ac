from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefix_router.settings import rules_discovery
from prefix_router.settings.load import load_text
from prefix_router.settings.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable


A_NUMBER = "a whole number from 1 to 65535"
EXTRA = "needs an extra that is not installed: pip install prefix_router"


@pytest.mark.parametrize(
    "source",
    [
        "file: {path: list.yaml}",
        "dns: {name: vllm.test.}",
        "kubernetes: {service: vllm}",
        "kubernetes: {selector: 'app=vllm,tier in (a, b)'}",
    ],
)
def test_with_a_source_no_backend_needs_to_be_written_down(source: str) -> None:
    settings = load_text(f"discovery: {{{source}}}", "x.yaml", {})
    assert settings.discovery.on


def test_without_a_source_one_does(mistakes: Callable[..., list[str]]) -> None:
    [mistake] = mistakes("discovery: {dns: {port: 1}, kubernetes: {port: http}}")
    assert "expected at least one backend" in mistake


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        (
            "kubernetes: {service: a, selector: b=c}",
            "kubernetes.selector: expected null with a service: it is one or the other",
        ),
        (
            "kubernetes: {service: a, context: c}",
            "kubernetes.context: expected null without a kubeconfig",
        ),
        (
            "dns: {name: a, min_seconds: 9, max_seconds: 8}",
            "dns.min_seconds: expected at most max_seconds (8), got 9",
        ),
        (
            "dns: {name: a, resolvers: [10.0.0.1, 10.0.0.256]}",
            "dns.resolvers[1]: expected an IP address, with :port if it is not 53, got 10.0.0.256",
        ),
        (
            "dns: {name: a, resolvers: ['10.0.0.1:0']}",
            "dns.resolvers[0]: expected an IP address, with :port if it is not 53, got 10.0.0.1:0",
        ),
        (
            "kubernetes: {service: a, port: 0}",
            f"kubernetes.port: expected null or {A_NUMBER} or the name of a port, such as http, got 0",
        ),
    ],
)
def test_what_does_not_fit_together_is_told(
    mistakes: Callable[..., list[str]], section: str, mistake: str
) -> None:
    assert mistakes(f"discovery: {{{section}}}") == [f"x.yaml:1: discovery.{mistake}"]


@pytest.mark.parametrize("resolver", ["10.0.0.53", "10.0.0.53:5353", "fd00::53", "[fd00::53]:5353"])
def test_a_name_server_is_an_address_with_or_without_a_port(resolver: str) -> None:
    text = f"discovery: {{dns: {{name: a, resolvers: ['{resolver}']}}}}"
    assert load_text(text, "x.yaml", {}).discovery.dns.resolvers == (resolver,)


@pytest.mark.parametrize(
    ("section", "place", "extra"),
    [
        ("dns: {name: a}", "dns.name", "dns"),
        ("kubernetes: {service: a}", "kubernetes.service", "kubernetes"),
        ("kubernetes: {selector: a=b}", "kubernetes.selector", "kubernetes"),
    ],
)
def test_a_source_without_its_extra_says_how_to_install_it(
    mistakes: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    place: str,
    extra: str,
) -> None:
    monkeypatch.setattr(rules_discovery, "find_spec", lambda _: None)
    expected = f"x.yaml:1: discovery.{place}: {EXTRA}[{extra}]"
    assert mistakes(f"discovery: {{{section}}}") == [expected]


def test_the_summary_names_the_sources() -> None:
    text = "discovery: {file: {path: l.yaml}, dns: {name: a.b, type: srv}, kubernetes: {service: vllm}}"
    [line] = [line for line in summary(load_text(text, "x.yaml", {})).splitlines() if "backends" in line]
    assert line == "backends  0, and those that are found: file l.yaml, DNS a.b (srv), Kubernetes vllm"
