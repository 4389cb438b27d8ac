from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.engine.block_hash import pack_token_ids
from prefix_router.simulate import tokens

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def test_four_bytes_of_text_are_one_token() -> None:
    assert tokens.count(tokens.encode("x" * 32_000)) == 8000
    assert tokens.count(tokens.encode("12345")) == 2
    assert tokens.count(tokens.encode("")) == 0


@given(TEXT)
def test_text_comes_back_from_its_tokens_and_from_its_token_ids(text: str) -> None:
    encoded = tokens.encode(text)
    assert tokens.decode(encoded) == text
    assert tokens.decode(pack_token_ids(tokens.to_ids(encoded))) == text


@given(TEXT, TEXT, TEXT)
def test_equal_beginnings_of_text_give_equal_tokens(head: str, one: str, other: str) -> None:
    whole_tokens = len(head.encode()) // 4
    assert (
        tokens.to_ids(tokens.encode(head + one))[:whole_tokens]
        == (tokens.to_ids(tokens.encode(head + other))[:whole_tokens])
    )


def test_tokens_that_are_no_text_decode_to_replacement_characters() -> None:
    assert "�" in tokens.decode(b"\xff\xfe\xff\xfe")


@pytest.mark.parametrize("length", [1, 3, 49, 50, 1000])
def test_generated_text_has_the_length_asked_for_and_survives_a_round_trip(length: int) -> None:
    generated = tokens.generate(123, length)
    assert tokens.count(generated) == length
    assert tokens.encode(tokens.decode(generated)) == generated


def test_generated_text_depends_on_the_seed_and_on_nothing_else() -> None:
    assert tokens.generate(1, 20) == tokens.generate(1, 20)
    assert tokens.generate(1, 20) != tokens.generate(2, 20)


def test_a_longer_answer_begins_like_a_shorter_one() -> None:
    assert tokens.generate(5, 200).startswith(tokens.generate(5, 30))
