from __future__ import annotations

from typing import Any

import pytest

from prefix_router.build import backends_of
from prefix_router.discovery.dns import DnsOptions
from prefix_router.discovery.endpoint_slices import SliceOptions
from prefix_router.discovery.file import FileOptions
from prefix_router.discovery.kubernetes import KubernetesOptions
from prefix_router.discovery.kubernetes_api import AccessOptions
from prefix_router.discovery.source import Family, Found, SourceName
from prefix_router.found_backends import BackendListReader, discovery_options_of, with_found
from prefix_router.routing.fleet import BackendName
from prefix_router.settings.load import load_text
from prefix_router.settings.model import Settings

EVERYTHING_OF_DNS = (
    "dns: {name: a, type: srv, port: 9, scheme: https, family: both, weights: true, "
    "resolvers: [10.0.0.1], min_seconds: 1, max_seconds: 2}, defaults: {path: /llm}"
)
EVERYTHING_OF_KUBERNETES = (
    "kubernetes: {selector: app=vllm, namespace: n, port: http, scheme: https, family: ipv6, "
    "models_label: l, kubeconfig: k, context: c, watch_seconds: 60}"
)


def settings(discovery: str, rest: str = "") -> Settings:
    return load_text(f"discovery: {{{discovery}}}\n{rest}", "x.yaml", {})


def found(name: str, url: str = "", **more: Any) -> Found:
    return Found(BackendName(name), url or f"http://{name}:8000", **more)


@pytest.mark.parametrize(
    ("section", "name", "options"),
    [
        ("file: {path: l.yaml}", SourceName.FILE, FileOptions("l.yaml", BackendListReader(None))),
        ("dns: {name: a}", SourceName.DNS, DnsOptions("a", 8000)),
        (
            EVERYTHING_OF_DNS,
            SourceName.DNS,
            DnsOptions("a", None, "https", "/llm", Family.BOTH, True, ("10.0.0.1",), 1, 2),
        ),
        (
            "kubernetes: {service: vllm}",
            SourceName.KUBERNETES,
            KubernetesOptions("kubernetes.io/service-name=vllm"),
        ),
        (
            EVERYTHING_OF_KUBERNETES,
            SourceName.KUBERNETES,
            KubernetesOptions(
                "app=vllm",
                SliceOptions("http", "https", "", Family.IPV6, "l"),
                AccessOptions("k", "c", "n"),
                60,
            ),
        ),
    ],
)
def test_each_section_makes_one_source_and_equal_settings_an_equal_one(
    section: str, name: SourceName, options: object
) -> None:
    assert discovery_options_of(settings(section)).sources == {name: options}


def test_the_patience_of_discovery_is_that_of_the_settings() -> None:
    options = discovery_options_of(
        settings(
            "file: {path: l}, settle_seconds: 1, first_answer_seconds: 2, believe_empty_seconds: 3",
        )
    )
    patience = (options.settle_seconds, options.first_answer_seconds, options.believe_empty_seconds)
    assert patience == (1, 2, 3)


def test_a_found_backend_is_what_its_source_says_and_for_the_rest_what_the_defaults_say() -> None:
    given = settings(
        "file: {path: l}, defaults: {weight: 2, models: [m], server_name: s, authorization: Bearer d}",
        "limits: {max_in_flight_per_backend: 5}",
    )
    sets = {
        SourceName.FILE: (
            found("a"),
            found("b", "https://b", weight=3, models=frozenset({"n"}), authorization="Bearer b"),
            found("c", "https://c", server_name="t"),
        )
    }
    served, clashes = with_found(given, sets)
    assert not clashes
    backends = backends_of(served)
    assert [(str(one.name), one.url, one.weight, one.max_in_flight) for one in backends] == [
        ("a", "http://a:8000", 2, 10),
        ("b", "https://b", 3, 15),
        ("c", "https://c", 2, 10),
    ]
    assert [one.models for one in backends] == [frozenset("m"), frozenset("n"), frozenset("m")]
    assert [(one.server_name, one.authorization) for one in backends] == [
        (None, "Bearer d"),
        ("s", "Bearer b"),
        ("t", "Bearer d"),
    ]


def test_what_is_written_down_stays_as_it_is_written_and_comes_first() -> None:
    given = settings(
        "dns: {name: n}, defaults: {weight: 9, authorization: Bearer d}",
        "backends: [{url: h:1, name: a}, {url: h:2, name: b, weight: 4}]",
    )
    served, clashes = with_found(given, {SourceName.DNS: (found("x"), found("b"), found("y", "http://h:1"))})
    assert served.backends[:2] == given.backends
    assert [one.name for one in served.backends] == ["a", "b", "x"]
    assert sorted(clash.what for clash in clashes) == ["name", "url"]


def test_nothing_found_changes_nothing() -> None:
    given = settings("dns: {name: n}")
    assert with_found(given, {SourceName.DNS: ()}) == (given, frozenset())
