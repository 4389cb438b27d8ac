from __future__ import annotations

from enum import Enum
from typing import Annotated

import pytest
from msgspec import NODEFAULT, Meta, Struct

from prefix_router.settings.fields import (
    choices_of,
    descriptions_of,
    expectation,
    item_of,
    leaves,
    section_of,
    written,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, frozen=True):
    """What is inside.

    depth: How deep
        it is.
    """

    depth: Annotated[int, Meta(ge=1, le=9)]


class Outer(Struct, frozen=True):
    """What is outside: the rest.

    colour: What it looks like: red or blue.
    parts: What it is made of.
    """

    parts: tuple[Inner, ...] = ()
    colour: Colour = Colour.RED
    inner: Inner = Inner(depth=1)


def test_the_leaves_are_the_settings_in_model_order_with_their_dotted_paths() -> None:
    found = [(leaf.path, leaf.default, leaf.description) for leaf in leaves(Outer)]
    assert found == [
        ("parts", (), "What it is made of."),
        ("parts[].depth", NODEFAULT, "How deep it is."),
        ("colour", Colour.RED, "What it looks like: red or blue."),
        ("inner.depth", NODEFAULT, "How deep it is."),
    ]


def test_facts_are_range_and_default() -> None:
    facts = {leaf.path: leaf.facts for leaf in leaves(Outer)}
    assert facts["parts[].depth"] == "Accepts a whole number from 1 to 9; required."
    assert facts["colour"] == "Accepts one of red, blue; default red."


def test_the_text_before_the_settings_describes_the_section() -> None:
    assert descriptions_of(Outer)[""] == "What is outside: the rest."


def test_a_section_without_a_docstring_has_no_descriptions() -> None:
    class Bare(Struct):
        pass

    Bare.__doc__ = None  # as under python -OO
    assert descriptions_of(Bare) == {"": ""}


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, Meta(ge=1, le=2)], "a whole number from 1 to 2"),
        (Annotated[float, Meta(ge=0.5, le=2)], "a number from 0.5 to 2"),
        (bool, "true or false"),
        (Colour, "one of red, blue"),
        (str, "text"),
        (Annotated[str, Meta(extra={"expects": "a path"})], "a path"),
        (Annotated[str, Meta(extra={"expects": "a path"})] | None, "null or a path"),
        (tuple[str, ...], "a list"),
        (Annotated[tuple[str, ...], Meta(min_length=1)] | None, "null or a list with at least 1 entry"),
        (Outer, "a mapping"),
        (Inner, "a mapping with depth"),
    ],
)
def test_an_expectation_is_told_in_words(annotation: object, words: str) -> None:
    assert expectation(annotation) == words


def test_wrappers_are_seen_through() -> None:
    assert section_of(Inner) is Inner
    assert section_of(int) is None
    assert section_of(item_of(Annotated[tuple[Inner, ...], Meta(min_length=1)] | None)) is Inner
    assert item_of(str) is None
    assert choices_of(Annotated[Colour, Meta(description="c")] | None) == ("red", "blue")
    assert choices_of(int) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (Colour.BLUE, "blue"),
        (5, "5"),
        (0.5, "0.5"),
        ((), "[]"),
        (("a", "b"), "[a, b]"),
        ("/health", "/health"),
        ("127.0.0.1", "127.0.0.1"),
        ("", '""'),
        ("a b", '"a b"'),
    ],
)
def test_a_default_is_written_as_in_yaml(value: object, text: str) -> None:
    assert written(value) == text
