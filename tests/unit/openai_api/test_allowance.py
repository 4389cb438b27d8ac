from __future__ import annotations

from msgspec import Raw

from prefix_router.openai_api.allowance import MOST_CANONICAL_BYTES, MOST_PARTS, Allowance


def test_values_are_put_in_canonical_form_while_that_is_allowed() -> None:
    allowance = Allowance()
    long = Raw(b'{"b": "' + b"x" * (MOST_CANONICAL_BYTES // 2) + b'", "a": null}')
    assert allowance.canonical(long) == b'{"b":"' + b"x" * (MOST_CANONICAL_BYTES // 2) + b'"}'
    assert allowance.canonical(long) == bytes(long)


def test_a_value_that_is_too_long_takes_nothing_from_those_after_it() -> None:
    allowance = Allowance()
    huge = Raw(b'{"b": "' + b"x" * MOST_CANONICAL_BYTES + b'", "a": null}')
    assert allowance.canonical(huge) == bytes(huge)
    assert allowance.canonical(Raw(b'{"b": 1, "a": 2}')) == b'{"a":2,"b":1}'


def test_members_are_left_out_where_the_form_is_canonical() -> None:
    assert Allowance().canonical(Raw(b'{"b": 1, "id": 2}'), without=frozenset({"id"})) == b'{"b":1}'


def test_text_is_a_string_itself_or_the_canonical_form_of_another_value() -> None:
    assert Allowance().text(Raw(b'"{\\"a\\": 1}"')) == '{"a": 1}'
    assert Allowance().text(Raw(b'{"b": 1, "a": 2}')) == '{"a":2,"b":1}'


def test_parts_are_counted() -> None:
    allowance = Allowance()
    assert all(allowance.part() for _ in range(MOST_PARTS))
    assert not allowance.part()
    assert not allowance.part()
    assert Allowance().part()
