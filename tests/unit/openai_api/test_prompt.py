from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

from prefix_router.openai_api.allowance import Allowance
from prefix_router.openai_api.prompt import Prompt, Turn, UnreadablePromptError
from prefix_router.openai_api.raw_json import ABSENT
from prefix_router.openai_api.turns import chat_turn, plain_text


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def ids(written: str, limit: int) -> Sequence[int] | None:
    return Prompt(ids=Raw(written.encode())).token_ids(limit)


def test_the_preamble_has_the_fields_that_are_present_in_canonical_form() -> None:
    prompt = Prompt(
        fields=(("tools", Raw(b'[{"b": 1, "a": null}]')), ("kwargs", Raw(b"null")), ("x", ABSENT))
    )
    assert list(prompt.preamble()) == [("tools", b'[{"b":1}]')]


def test_turns_are_the_opening_and_then_the_messages() -> None:
    messages = [raw({"role": "user", "content": "b"}), raw({"role": "assistant", "content": "c"})]
    prompt = Prompt(opening=((plain_text, raw("a")),), messages=messages, read_message=chat_turn)
    assert [(turn.role, turn.parts[0].text) for turn in prompt.turns()] == [
        ("", "a"),
        ("user", "b"),
        ("assistant", "c"),
    ]


def test_a_prompt_without_messages_ends_with_its_opening() -> None:
    assert list(Prompt(opening=((plain_text, raw("a")),)).turns()) == [plain_text(raw("a"), Allowance())]


def test_a_turn_is_read_when_it_is_asked_for_and_not_before() -> None:
    read: list[bytes] = []

    def reader(value: Raw, allowance: Allowance) -> Turn:
        read.append(bytes(value))
        return Turn("user", ())

    turns = Prompt(messages=[Raw(b"1"), Raw(b"2"), Raw(b"3")], read_message=reader).turns()
    assert read == []
    next(turns)
    next(turns)
    assert read == [b"1", b"2"]


def test_a_message_that_cannot_be_read_ends_the_turns_with_an_error() -> None:
    turns = Prompt(messages=[raw({"role": "user"}), Raw(b"5")], read_message=chat_turn).turns()
    assert next(turns) == Turn("user", [])
    with pytest.raises(UnreadablePromptError):
        next(turns)


@pytest.mark.parametrize("written", [b"[" * 5000 + b"]" * 5000, b'["\xff"]', b"[1e999]"])
def test_a_field_that_cannot_be_read_is_an_error(written: bytes) -> None:
    with pytest.raises(UnreadablePromptError):
        list(Prompt(fields=(("tools", Raw(written)),)).preamble())


def test_a_prompt_of_text_has_no_token_ids() -> None:
    assert Prompt(opening=((plain_text, raw("a")),)).token_ids(10) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 99, 100, 101, 5000])
@pytest.mark.parametrize("indent", [None, 0, 40])
def test_the_first_ids_are_the_first_ids_however_they_are_written(limit: int, indent: int | None) -> None:
    many = [(n * 2_654_435_761) % 2**32 for n in range(100)]
    assert ids(json.dumps(many, indent=indent), limit) == many[:limit]
    assert ids(json.dumps(many, separators=(",", ":")), limit) == many[:limit]


def test_a_single_id_after_much_white_space_is_found() -> None:
    assert ids("[" + " " * 500 + "7, 8]", 1) == [7]


@pytest.mark.parametrize("invalid", ["-1", "4294967296", "1.0", "true", '"1"', "[1]", "null", "1e3"])
def test_ids_are_whole_numbers_below_two_to_the_32(invalid: str) -> None:
    with pytest.raises(UnreadablePromptError):
        ids(f"[0, {invalid}, 2]", 3)


def test_ids_past_the_limit_are_not_looked_at() -> None:
    assert ids("[" + "7, " * 1000 + "true]", 3) == [7, 7, 7]


def test_a_long_array_that_only_begins_like_ids_is_refused() -> None:
    with pytest.raises(UnreadablePromptError):
        ids("[0, [" + "1, " * 1000 + "1]]", 3)
