from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.openai_api.json_scan import (
    SLICE_BYTES,
    JsonScan,
    MalformedError,
    Steps,
    TooMuchError,
    WholeBytes,
    finish,
)

LONG = 5 * SLICE_BYTES + 7


def scan(document: bytes, **options: Any) -> JsonScan:
    return JsonScan(WholeBytes(document), **options)


def end_of(value: bytes, after: bytes = b", 1") -> int:
    return finish(scan(value + after).value(0))


VALUES = {
    "a number": b"-1.5e3",
    "a word": b"true",
    "an empty string": b'""',
    "a string with escapes": rb'"a\"b\\\"\\"',
    "a string that ends in a backslash": rb'"\\"',
    "an empty array": b"[]",
    "an empty object": b"{ }",
    "brackets in strings": b'{"a]":"}",":":["[",{}]}',
    "escaped quotes in names": rb'{"a\"]\\":[1]}',
    "a long number": b"1" * LONG,
    "a long string": b'"' + b"a" * LONG + b'"',
    "a long string of backslashes": b'"' + rb"\\" * LONG + b'"',
    "a long string of quotes": b'"a' + rb"\"" * LONG + b'"',
    "a long array": b"[" + b'"]",{"[":1},' * LONG + b"0]",
    "a string in an array": b'["' + b"a" * LONG + rb'\"]"]',
    "strings of escapes": b'["' + rb"\\" * LONG + b'","' + rb"\"]" * LONG + b'"]',
    "deep nesting": b"[" * LONG + b"]" * LONG,
    "a saw of nesting": b"[" + (b"[" * 90 + b"]" * 90) * 200 + b"]",
    "blanks": b"[" + b" \t\r\n" * LONG + b"]",
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("shift", [0, 1, 254, 255])
def test_the_end_of_a_value_is_found_wherever_the_slices_are_cut(value: bytes, shift: int) -> None:
    before = b" " * shift
    walk = scan(before + value + b" , [")
    start = finish(walk.blank(0))
    assert (start, finish(walk.value(start))) == (shift, shift + len(value))


json_values = st.recursive(
    st.none() | st.integers() | st.text('ab"\\[]{},:\u00e9\U0001f600'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\[]{}'), inner),
)


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_the_end_of_any_value_is_found(value: Any, ascii_only: bool, indent: int | None) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert end_of(written) == len(written)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_that_is_longer_than_asked_for_is_not_passed_over(value: bytes) -> None:
    assert finish(scan(value + b" ").value(0, len(value))) == len(value)
    assert finish(scan(value + b" ").value(0, len(value) - 1)) == -1
    walk = scan(value + b" ")
    seen = sum(steps(walk.value(0, 1000))[0])
    assert seen <= 4 * SLICE_BYTES


def steps(work: Steps[Any]) -> tuple[list[int], Any]:
    """Do a piece of work; return what it yields and what it returns."""
    seen = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as end:
            return seen, end.value


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_step_looks_at_more_than_a_few_slices(value: bytes) -> None:
    seen, _ = steps(scan(value + b" ").value(0))
    assert len(seen) >= len(value) // (2 * SLICE_BYTES)
    assert max(seen, default=0) < 2 * SLICE_BYTES + 100


def test_short_values_are_not_looked_at_by_the_slice() -> None:
    walk = scan(b'["a", 1, [2], {"b": 3}]' + b" " * LONG)
    assert steps(walk.value(1)) == ([], 4)
    seen, _ = steps(walk.value(6))
    assert seen == []


@pytest.mark.parametrize(
    "value",
    [b"", b'"a', b'"a\\', b'"\\"', b"[", b'["a', b"[[]", b'{"a":[1,2}', b",", b":", b"]", b"[" * LONG],
)
def test_a_value_without_an_end_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedError):
        end_of(value, b"")


def test_the_elements_of_an_array_are_found_one_after_the_other() -> None:
    document = b'[ 1 ,"a", [2] ]x'
    walk = scan(document)
    found = []
    at, end = finish(walk.first(0))
    while at >= 0:
        end = finish(walk.value(at))
        found.append(document[at:end])
        at, end = finish(walk.following(end))
    assert found == [b"1", b'"a"', b"[2]"]
    assert document[end:] == b"x"


def test_the_rest_of_a_container_is_passed_over_from_within() -> None:
    document = b'[1, 2, "]", [3]] '
    assert finish(scan(document).rest(4)) == len(document) - 1


def test_an_empty_container_has_no_first_element() -> None:
    assert finish(scan(b"[ ]").first(0)) == (-1, 3)
    assert finish(scan(b"{}").first(0)) == (-1, 2)


def test_the_name_of_a_member_comes_with_the_place_of_its_value() -> None:
    assert finish(scan(b'"a\\n" : 1').name(0)) == (b'"a\\n"', 8)
    name, place = finish(scan(b'"' + b"a" * LONG + b'":1').name(0))
    assert len(name) < SLICE_BYTES
    assert place == LONG + 3


@pytest.mark.parametrize("member", [b"", b"a:1", b'"a"', b'"a" 1', b'"a'])
def test_a_member_without_a_name_or_a_colon_is_malformed(member: bytes) -> None:
    with pytest.raises(MalformedError):
        finish(scan(member).name(0))


def test_elements_without_a_comma_are_malformed() -> None:
    with pytest.raises(MalformedError):
        finish(scan(b"[1 2]").following(2))
    with pytest.raises(MalformedError):
        finish(scan(b"[1").following(2))


def elements(walk: JsonScan) -> Steps[int]:
    at, end = yield from walk.first(0)
    while at >= 0:
        end = yield from walk.value(at)
        at, end = yield from walk.following(end)
    return end


@pytest.mark.parametrize(
    ("document", "work"),
    [
        (b"[" + b"1," * 1000 + b"1]", elements),
        (b'[{"":[' + (b"[" * 900 + b"]" * 900) * 100 + b"]}]", lambda walk: walk.value(0)),
    ],
    ids=["many elements", "a saw of nesting"],
)
def test_there_is_an_end_to_what_is_done_for_one_document(
    document: bytes, work: Callable[[JsonScan], Steps[int]]
) -> None:
    assert finish(work(scan(document))) == len(document)
    with pytest.raises(TooMuchError):
        finish(work(scan(document, most_steps=500)))
