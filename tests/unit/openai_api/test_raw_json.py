from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import Raw

from prefix_router.openai_api.raw_json import (
    ABSENT,
    MOST_ITEMS,
    UNDECODABLE,
    Head,
    array_head,
    canonical,
    first_item,
    first_lead,
    is_present,
    items,
    lead,
    string,
)


def head_of(written: bytes) -> Head:
    return msgspec.json.decode(written, type=Head)


def test_the_head_of_an_array_has_its_elements_as_they_are_written() -> None:
    assert [bytes(item) for item in items(head_of(b'[ 1, {"a": [2]} ,"x"]'))] == [b"1", b'{"a": [2]}', b'"x"']


def test_an_absent_array_and_an_empty_one_have_no_elements() -> None:
    assert items(None) == ()
    assert items(head_of(b"[]")) == ()


@pytest.mark.parametrize("count", [MOST_ITEMS - 1, MOST_ITEMS, MOST_ITEMS + 1, 10 * MOST_ITEMS])
def test_no_more_elements_are_looked_at_than_the_bound_allows(count: int) -> None:
    found = items(head_of(json.dumps(list(range(count))).encode()))
    assert [int(bytes(item)) for item in found] == list(range(min(count, MOST_ITEMS)))


def test_a_null_element_is_an_element() -> None:
    assert [bytes(item) for item in items(head_of(b"[null, 1]"))] == [b"null", b"1"]


def test_the_first_elements_of_an_array_can_be_decoded_with_it() -> None:
    decoded: msgspec.Struct = msgspec.json.decode(b'["a", "b", "c"]', type=array_head("Strings", str, 2))
    assert items(decoded)[:2] == ("a", "b")
    assert bytes(items(decoded)[2]) == b'"c"'


def test_the_first_item_of_an_array_is_found_without_the_others() -> None:
    assert bytes(first_item(Raw(b'[ [1, 2], "x"]'))) == b"[1, 2]"
    assert first_item(Raw(b"[ ]")) is ABSENT


@pytest.mark.parametrize(
    ("array", "character"), [(b"[1]", "1"), (b'[ "x"]', '"'), (b"[" + b" " * 200 + b"7]", "7"), (b"[ ]", "]")]
)
def test_the_first_character_of_an_array_is_found_past_any_white_space(array: bytes, character: str) -> None:
    assert first_lead(Raw(array)) == character


def test_the_first_character_of_an_empty_array_with_much_white_space_is_that_of_null() -> None:
    assert first_lead(Raw(b"[" + b" " * 200 + b"]")) == "n"


def test_null_is_as_good_as_absent() -> None:
    assert not is_present(ABSENT)
    assert not is_present(Raw(b"null"))
    assert is_present(Raw(b"false"))
    assert lead(Raw(b"false")) == "f"


def test_only_a_string_is_a_string() -> None:
    assert string(Raw(b'"caf\\u00e9"')) == "café"
    assert string(Raw(b"5")) is None
    assert string(ABSENT) is None
    with pytest.raises(ValueError, match="UTF-8"):
        string(Raw(b'"\xff"'))


@pytest.mark.parametrize(
    "spelling",
    [
        b'{"a":1,"b":{"c":"\xc3\xa9","d":[1,2]}}',
        b'{ "b" : {"d":[1, 2], "c":"\\u00e9"},\n"a":1 }',
        b'{"a":1,"b":{"c":"\\u00E9","d":[1,2],"x":null},"y":null}',
    ],
)
def test_equal_values_have_one_canonical_form(spelling: bytes) -> None:
    assert canonical(Raw(spelling)) == '{"a":1,"b":{"c":"é","d":[1,2]}}'.encode()


def test_the_order_of_an_array_and_nulls_in_it_are_kept() -> None:
    assert canonical(Raw(b'[2, null, 1, {"a": null}]')) == b"[2,null,1,{}]"


def test_members_can_be_left_out_of_the_canonical_form() -> None:
    value = Raw(b'{"id": "x", "a": {"id": "y"}}')
    assert canonical(value, without=frozenset({"id"})) == b'{"a":{"id":"y"}}'
    assert canonical(Raw(b'["id"]'), without=frozenset({"id"})) == b'["id"]'


@pytest.mark.parametrize(
    "written",
    [b"[" * 10_000, b'{"a":' * 10_000, b'{"a": 1', b'"\xff"', b'"\\ud800"', b"1e999", b"1" * 5000, b""],
)
def test_whatever_cannot_be_decoded_raises_one_of_two_errors(written: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        canonical(Raw(written))
