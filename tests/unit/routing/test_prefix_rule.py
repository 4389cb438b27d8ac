from __future__ import annotations

from collections.abc import Sequence

import pytest

from prefix_router.routing.key_views import TokenEncoder
from prefix_router.routing.prefix_rule import PrefixAnchor, PrefixRule, PrefixUnit, meter
from prefix_router.tokenization import MOST_CHARACTERS_PER_TOKEN


class Words:
    """A tokenizer that makes a token of each word; its id is the word's length."""

    def head(self, text: str, limit: int) -> Sequence[int]:
        return [len(word) for word in text.split()][:limit]

    def extent(self, text: str, tokens: int) -> int:
        raise NotImplementedError


class Taken:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.ids: list[Sequence[int]] = []

    def head(self, data: bytes) -> None:
        self.texts.append(data)

    def tokens_of(self, text: str, ids: Sequence[int], encoder: TokenEncoder) -> None:
        self.ids.append(ids)


def test_by_default_a_key_is_in_tokens_and_ends_with_the_first_user_turn() -> None:
    assert PrefixRule(1024) == PrefixRule(1024, PrefixUnit.TOKENS, PrefixAnchor.FIRST_USER_TURN)


@pytest.mark.parametrize("length", [0, -1])
def test_a_prefix_has_a_length(length: int) -> None:
    with pytest.raises(ValueError, match="at least 1 of its tokens"):
        PrefixRule(length)


def test_characters_are_counted_over_texts_and_cut_at_the_length() -> None:
    taken = Taken()
    length = meter(PrefixRule(5, PrefixUnit.CHARACTERS), None, taken)
    length.take("日本")
    assert (length.left, length.used()) == (3, 2)
    length.take("語のAB")
    assert (length.left, length.used()) == (0, 5)
    assert taken.texts == ["日本".encode(), "語のA".encode()]


def test_an_encoder_does_not_change_what_a_character_is() -> None:
    taken = Taken()
    meter(PrefixRule(2, PrefixUnit.CHARACTERS), Words(), taken).take("a b c")
    assert taken.texts == [b"a "]


def test_an_estimated_token_is_four_bytes_of_utf_8() -> None:
    taken = Taken()
    length = meter(PrefixRule(2), None, taken)
    length.take("日本")
    assert (length.left, length.used()) == (2, 2)
    length.take("語の")
    assert (length.left, length.used()) == (0, 2)
    assert taken.texts == ["日本".encode(), "語".encode()[:2]]


def test_a_token_that_is_begun_is_counted() -> None:
    length = meter(PrefixRule(10), None, Taken())
    length.take("abcde")
    assert length.used() == 2


def test_exact_tokens_are_those_of_the_encoder_text_by_text() -> None:
    taken = Taken()
    length = meter(PrefixRule(3), Words(), taken)
    length.take("a bb")
    assert (length.left, length.used()) == (1, 2)
    length.take("ccc dddd")
    assert (length.left, length.used()) == (0, 3)
    assert taken.ids == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("rule", "exact", "head_bytes"),
    [
        (PrefixRule(1024), False, 4096),
        (PrefixRule(1024, PrefixUnit.CHARACTERS), False, 4096),
        (PrefixRule(1024, PrefixUnit.CHARACTERS), True, 4096),
        (PrefixRule(1024, PrefixUnit.BYTES), True, 0),
        (PrefixRule(1024), True, 65536),
        (PrefixRule(1), True, 2048),
    ],
)
def test_only_so_much_of_one_text_can_matter(rule: PrefixRule, exact: bool, head_bytes: int) -> None:
    assert rule.head_bytes(exact=exact) == head_bytes


@pytest.mark.parametrize("length", [1, 16, 100, 1024])
def test_the_head_for_exact_tokens_is_more_than_a_tokenizer_looks_at(length: int) -> None:
    last_window = 2 * length * MOST_CHARACTERS_PER_TOKEN  # it doubles until it is as wide as it may be
    assert PrefixRule(length).head_bytes(exact=True) >= last_window
