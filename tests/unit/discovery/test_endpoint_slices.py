from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prefix_router.discovery.endpoint_slices import EndpointSlice, PortError, SliceOptions, backends_in
from prefix_router.discovery.source import Family
from tests.support.kubernetes_api import endpoint, endpoint_slice


def found(*documents: Any, **options: Any) -> dict[str, str]:
    slices = [msgspec.convert(document, EndpointSlice) for document in documents]
    return {backend.name: backend.url for backend in backends_in(slices, SliceOptions(**options))}


def test_all_slices_of_a_service_are_read_together() -> None:
    one = endpoint_slice("vllm-1", endpoint("10.0.0.1", "pod-a"), endpoint("10.0.0.2", "pod-b"))
    two = endpoint_slice("vllm-2", endpoint("10.0.0.3", "pod-c"))
    assert found(one, two) == {
        "pod-a": "http://10.0.0.1:8000",
        "pod-b": "http://10.0.0.2:8000",
        "pod-c": "http://10.0.0.3:8000",
    }


@pytest.mark.parametrize(
    ("conditions", "usable"),
    [
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({}, True),
        ({"ready": None}, True),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "serving": True, "terminating": True}, False),
        ({"ready": True, "terminating": None}, True),
    ],
)
def test_ready_and_not_terminating_is_what_counts_and_nothing_said_is_ready(
    conditions: dict[str, Any], usable: bool
) -> None:
    document = endpoint_slice("vllm-1", {"addresses": ["10.0.0.1"], "conditions": conditions})
    assert bool(found(document)) is usable


def test_an_endpoint_that_moves_between_slices_is_one_and_ready_if_it_is_ready_in_one() -> None:
    old = endpoint_slice("vllm-1", endpoint("10.0.0.1", "pod-a", ready=False))
    new = endpoint_slice("vllm-2", endpoint("10.0.0.1", "pod-a"))
    assert found(old, new) == {"pod-a": "http://10.0.0.1:8000"}
    assert found(new, old) == {"pod-a": "http://10.0.0.1:8000"}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (Family.AUTO, {"pod-a": "http://10.0.0.1:8000"}),
        (Family.IPV4, {"pod-a": "http://10.0.0.1:8000"}),
        (Family.IPV6, {"pod-a": "http://[fd00::1]:8000"}),
        (Family.BOTH, {"pod-a": "http://10.0.0.1:8000", "[fd00::1]:8000": "http://[fd00::1]:8000"}),
    ],
)
def test_a_pod_with_addresses_of_both_kinds_is_one_backend_unless_one_says_otherwise(
    family: Family, expected: dict[str, str]
) -> None:
    four = endpoint_slice("vllm-4", endpoint("10.0.0.1", "pod-a"))
    six = endpoint_slice("vllm-6", endpoint("fd00::1", "pod-a"), kind="IPv6")
    assert found(six, four, family=family) == expected


def test_a_pod_that_is_ready_under_one_of_its_addresses_only_is_used_under_that() -> None:
    four = endpoint_slice("vllm-4", endpoint("10.0.0.1", "pod-a", ready=False))
    six = endpoint_slice("vllm-6", endpoint("fd00::1", "pod-a"), kind="IPv6")
    assert found(four, six) == {"pod-a": "http://[fd00::1]:8000"}


def test_an_endpoint_without_a_pod_is_called_by_its_address() -> None:
    assert found(endpoint_slice("vllm-1", "10.0.0.1")) == {"10.0.0.1:8000": "http://10.0.0.1:8000"}


def test_names_of_hosts_are_no_addresses() -> None:
    assert found(endpoint_slice("vllm-1", "vllm.example", kind="FQDN")) == {}


HTTP, METRICS, GOSSIP = (
    {"name": "http", "port": 8000, "protocol": "TCP"},
    {"name": "metrics", "port": 9000},
    {"name": "gossip", "port": 7000, "protocol": "UDP"},
)


@pytest.mark.parametrize(
    ("port", "ports", "expected"),
    [
        (None, [HTTP], 8000),
        (None, [HTTP, GOSSIP], 8000),
        ("http", [HTTP, METRICS], 8000),
        ("metrics", [HTTP, METRICS], 9000),
        (8080, [HTTP, METRICS], 8080),
        (8080, [], 8080),
    ],
)
def test_the_port_is_the_only_one_or_named_or_a_number(
    port: int | str | None, ports: list[dict[str, Any]], expected: int
) -> None:
    document = endpoint_slice("vllm-1", "10.0.0.1", ports=ports)
    assert list(found(document, port=port).values()) == [f"http://10.0.0.1:{expected}"]


def test_a_named_port_may_be_another_number_in_another_slice() -> None:
    one = endpoint_slice("vllm-1", endpoint("10.0.0.1", "pod-a"))
    two = endpoint_slice("vllm-2", endpoint("10.0.0.2", "pod-b"), ports=[{"name": "http", "port": 8001}])
    assert found(one, two, port="http") == {"pod-a": "http://10.0.0.1:8000", "pod-b": "http://10.0.0.2:8001"}


@pytest.mark.parametrize(
    ("port", "ports", "message"),
    [
        (None, [HTTP, METRICS], "expected one port, there is http (8000), metrics (9000)"),
        ("https", [HTTP], "expected a port https, there is http (8000)"),
        (None, [], "expected one port, there is none"),
    ],
)
def test_a_port_that_is_not_clear_is_told(
    port: str | None, ports: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(PortError) as error:
        found(endpoint_slice("vllm-1", "10.0.0.1", ports=ports), port=port)
    assert str(error.value) == f"EndpointSlice vllm-1: {message}"


def test_a_slice_without_usable_endpoints_needs_no_port() -> None:
    assert found(endpoint_slice("vllm-1", ports=[])) == {}
    assert found({"metadata": {"name": "vllm-1"}, "addressType": "IPv4", "endpoints": None}) == {}


def test_models_come_from_a_label_or_an_annotation_of_the_slice() -> None:
    label = endpoint_slice("vllm-1", "10.0.0.1", labels={"example.org/models": "llama"})
    note = endpoint_slice("vllm-2", "10.0.0.2", annotations={"example.org/models": "org/llama, qwen,"})
    neither = endpoint_slice("vllm-3", "10.0.0.3")
    slices = [msgspec.convert(document, EndpointSlice) for document in (label, note, neither)]
    backends = backends_in(slices, SliceOptions(models_label="example.org/models"))
    assert [backend.models for backend in backends] == [
        frozenset({"llama"}),
        frozenset({"org/llama", "qwen"}),
        None,
    ]
    assert {backend.models for backend in backends_in(slices, SliceOptions())} == {None}


def test_scheme_and_path_are_those_of_the_options() -> None:
    document = endpoint_slice("vllm-1", endpoint("fd00::1", "pod-a"), kind="IPv6")
    assert found(document, scheme="https", path="/llm", port=443) == {"pod-a": "https://[fd00::1]/llm"}
