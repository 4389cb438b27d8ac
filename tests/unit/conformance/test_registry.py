"""The list of cases: its order, its filters, and that it is whole."""

from __future__ import annotations

import pytest

from conformance.endpoints import Endpoint
from conformance.model import Priority
from conformance.registry import all_cases, case, every_kind, place, select, stream_and_whole


def test_cases_come_in_the_order_of_the_table() -> None:
    assert sorted(["B1", "A10", "F14b", "A2", "F14"], key=place) == ["A2", "A10", "B1", "F14", "F14b"]


def test_an_id_must_be_a_letter_and_a_number() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        place("nonsense")


def test_an_id_exists_once() -> None:
    taken = all_cases()[0].id
    with pytest.raises(ValueError, match="twice"):
        case(taken, "P0", "again", "never")(_never)


async def _never(_: object) -> str:
    raise AssertionError


def test_patterns_and_priorities_narrow_the_selection() -> None:
    cases = all_cases()
    chosen = select(cases, ["A1", "B*"], [Priority.P0])
    assert {found.id for found in chosen} >= {"A1", "B1", "B2", "B4"}
    assert all(found.priority is Priority.P0 and found.id[0] in "AB" for found in chosen)
    assert "A10" not in {found.id for found in chosen}
    assert select(cases) == cases


def test_every_kind_is_each_endpoint_and_a_stream_where_there_is_one() -> None:
    variants = every_kind("x", "y")
    assert len({variant.name for variant in variants}) == len(variants) == 18
    assert not any(variant.streaming for variant in variants if variant.endpoint is Endpoint.EMBEDDINGS)
    assert all(variant.streaming for variant in every_kind(streaming=True))
    assert [variant.streaming for variant in stream_and_whole()] == [False, True]


def test_each_case_says_what_must_hold_and_names_its_variants_apart() -> None:
    for found in all_cases():
        assert found.expectation.endswith("."), found.id
        assert len({variant.name for variant in found.variants}) == len(found.variants), found.id
