"""Keys that must never change: routers of two versions in front of one fleet have to agree.

A case that fails here is not to be updated. Either the change is a mistake, or the project gives up every
warm cache of every fleet at its next upgrade: then `VERSION` in `routing/key.py` changes with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prefix_router.openai_api.json_scan import WholeBytes, finish
from prefix_router.openai_api.request import Api, parse, parse_large
from prefix_router.routing.key import VERSION, PrefixAnchor, PrefixRule, PrefixUnit, prefix_key

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "key_golden.json").read_text("utf-8")
)
CASES: list[dict[str, Any]] = GOLDEN["cases"]


class CodePoints:
    """A tokenizer that makes a token of each code point."""

    def head(self, text: str, limit: int) -> Sequence[int]:
        return [ord(character) for character in text[:limit]]

    def extent(self, text: str, tokens: int) -> int:
        return tokens


def rule_of(case: dict[str, Any]) -> PrefixRule:
    rule = case["rule"]
    return PrefixRule(rule["length"], PrefixUnit(rule["unit"]), PrefixAnchor(rule["anchor"]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_request_has_the_key_that_it_has_always_had(case: dict[str, Any]) -> None:
    body = case["body"].encode()
    request = parse(case["path"], case.get("content_type"), body, case.get("headers", {}))
    key = prefix_key(request, rule_of(case), body, CodePoints() if case.get("exact") else None)
    assert (None if key is None else str(key)) == case["key"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_large_request_has_the_same_key(case: dict[str, Any]) -> None:
    body, rule = case["body"].encode(), rule_of(case)
    encoder = CodePoints() if case.get("exact") else None
    head_bytes = rule.head_bytes(exact=encoder is not None)
    headers, content_type = case.get("headers", {}), case.get("content_type")
    request = finish(parse_large(case["path"], content_type, WholeBytes(body), headers, head_bytes))
    key = prefix_key(request, rule, body, encoder)
    assert (None if key is None else str(key)) == case["key"]


def test_the_golden_keys_are_of_this_version() -> None:
    assert GOLDEN["version"] == VERSION.decode()


def test_the_golden_keys_cover_every_api_unit_and_anchor() -> None:
    assert len(CASES) >= 25
    assert {parse(case["path"], None, b"{}", {}).api for case in CASES} == set(Api)
    rules = {(rule_of(case).unit, rule_of(case).anchor) for case in CASES}
    assert rules == {(unit, anchor) for unit in PrefixUnit for anchor in PrefixAnchor}
    assert any(case["key"] is None for case in CASES)


def test_golden_cases_share_a_key_where_they_should_and_only_there() -> None:
    keys = {case["name"]: case["key"] for case in CASES}
    for case in CASES:
        assert case["key"] == keys[case.get("same_as", case["name"])]
    originals = [case["key"] for case in CASES if case["key"] and "same_as" not in case]
    assert len(set(originals)) == len(originals)
