from __future__ import annotations

import pytest

from prefix_router.discovery import merge as module
from prefix_router.discovery.merge import merge
from prefix_router.discovery.source import Found, SourceName
from prefix_router.routing.fleet import BackendName

STATIC, FILE, DNS = SourceName.STATIC, SourceName.FILE, SourceName.DNS


def found(name: str, url: str = "") -> Found:
    return Found(BackendName(name), url or f"http://{name}:8000")


def test_the_union_is_in_the_order_of_the_sources_whatever_the_order_they_are_given_in() -> None:
    merged = merge({DNS: [found("d")], FILE: [found("f")], STATIC: [found("s2"), found("s1")]})
    assert [(source, one.name) for source, one in merged.backends] == [
        (STATIC, "s2"),
        (STATIC, "s1"),
        (FILE, "f"),
        (DNS, "d"),
    ]
    assert not merged.clashes


def test_of_two_with_the_same_name_or_address_the_first_source_wins() -> None:
    merged = merge(
        {
            STATIC: [found("a")],
            FILE: [found("a", "http://other:8000"), found("b")],
            DNS: [found("x", "http://b:8000")],
        }
    )
    assert [one.url for _, one in merged.backends] == ["http://a:8000", "http://b:8000"]
    assert sorted(map(str, merged.clashes)) == [
        "a, found by file, is left out: its name is that of a backend of static",
        "x, found by dns, is left out: its url is that of a backend of file",
    ]


def test_a_fleet_is_bounded_but_for_what_an_operator_wrote_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKENDS", 2)
    merged = merge({STATIC: [found("a"), found("b"), found("c")], DNS: [found("d"), found("e")]})
    assert [one.name for _, one in merged.backends] == ["a", "b", "c"]
    assert [str(clash) for clash in merged.clashes] == [
        "the fleet is full with 2 backends: those found further on are left out"
    ]
