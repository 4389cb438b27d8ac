from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from xxhash import xxh3_64_intdigest

from prefix_router.routing.key import (
    VERSION,
    KeyEnd,
    PrefixAnchor,
    PrefixKey,
    PrefixRule,
    PrefixUnit,
    TokenEncoder,
    hashed_text,
    key_steps,
    prefix_key,
)

Turns = Sequence[tuple[str, Sequence[tuple[str, str, bool]]]]

TOKENS = PrefixRule(1024)
TO_THE_END = PrefixRule(1_000_000, anchor=PrefixAnchor.NONE)


@dataclass(frozen=True)
class Prompt:
    said: Turns = ()
    fields: tuple[tuple[str, bytes], ...] = ()
    ids: Sequence[int] | None = None

    def preamble(self) -> Iterable[tuple[str, bytes]]:
        return self.fields

    def token_ids(self, limit: int) -> Sequence[int] | None:
        return None if self.ids is None else self.ids[:limit]

    def turns(self) -> Iterator[tuple[str, Sequence[tuple[str, str, bool]]]]:
        yield from self.said


@dataclass(frozen=True)
class Request:
    prompt: Prompt | None = field(default_factory=Prompt)
    model: str | None = "m"
    cache_salt: str | None = None
    affinity_id: str | None = None


class Letters:
    """A tokenizer that makes a token of each letter."""

    def head(self, text: str, limit: int) -> Sequence[int]:
        return [ord(letter) for letter in text[:limit]]

    def extent(self, text: str, tokens: int) -> int:
        return tokens


def text(written: str) -> tuple[str, str, bool]:
    return ("text", written, True)


def media(data: str) -> tuple[str, str, bool]:
    return ("image_url", data, False)


def turn(role: str, *texts: str) -> tuple[str, Sequence[tuple[str, str, bool]]]:
    return (role, [text(written) for written in texts])


def chat(*said: tuple[str, Sequence[tuple[str, str, bool]]], **fields: bytes) -> Request:
    return Request(Prompt(said, tuple(fields.items())))


def key(
    request: Request,
    rule: PrefixRule = TOKENS,
    body: bytes | bytearray = b"",
    encoder: TokenEncoder | None = None,
) -> PrefixKey:
    found = prefix_key(request, rule, body, encoder)
    assert found is not None
    return found


CONVERSATION = chat(turn("system", "Be brief."), turn("user", "Hi"))


def test_equal_requests_have_equal_keys() -> None:
    again = chat(turn("system", "Be brief."), turn("user", "Hi"))
    assert again == CONVERSATION
    assert key(again) == key(CONVERSATION)


def test_a_key_is_a_whole_number_of_64_bits_and_prints_as_sixteen_digits() -> None:
    found = key(CONVERSATION)
    assert 0 <= found.value < 2**64
    assert str(found) == format(found.value, "016x")
    assert str(PrefixKey(0xAB, 1, KeyEnd.PROMPT)) == "00000000000000ab"


def test_these_are_the_bytes_that_are_hashed() -> None:
    request = Request(Prompt([turn("user", "Hi, you")], (("tools", b"[]"),)))
    mark = b"\xff\xff\xff\xff"
    head = VERSION + mark + b"field\xfemodel\xfem"
    fields = mark + b"field\xfetools\xfe[]"
    opened = mark + b"turn\xfeuser\xfe" + mark + b"part\xfetext\xfe"
    assert key(request, PrefixRule(1)).value == xxh3_64_intdigest(head + fields + opened + b"Hi, ")
    exact = key(request, PrefixRule(1), encoder=Letters()).value
    assert exact == xxh3_64_intdigest(head + fields + opened + b"H\0\0\0")
    ids = key(Request(Prompt(ids=[258])), PrefixRule(1)).value
    assert ids == xxh3_64_intdigest(head + mark + b"ids\xfe\xfe\x02\x01\0\0")
    body = key(request, PrefixRule(2, PrefixUnit.BYTES), b"\xff\0\1").value
    assert body == xxh3_64_intdigest(head + mark + b"body\xfe\xfe\xff\0")


@pytest.mark.parametrize(
    "other",
    [
        replace(CONVERSATION, model="n"),
        replace(CONVERSATION, model=None),
        replace(CONVERSATION, cache_salt="s"),
        replace(CONVERSATION, affinity_id="a"),
        chat(turn("system", "Be brief."), turn("user", "Hi"), tools=b"[]"),
        chat(turn("system", "Be brief."), turn("user", "Ho")),
        chat(turn("developer", "Be brief."), turn("user", "Hi")),
        chat(turn("user", "Hi"), turn("system", "Be brief.")),
        chat(turn("user", "Hi")),
        chat(turn("system"), turn("user", "Hi")),
        chat(turn("system", "Be ", "brief."), turn("user", "Hi")),
        chat(turn("system", "Be brief.Hi")),
        chat(turn("system", "Be brief.", "Hi")),
        chat(("system", [text("Be brief.")]), ("user", [("thinking", "Hi", True)])),
        chat(turn("system", "Be brief."), ("user", [media("x"), text("Hi")])),
    ],
)
def test_whatever_the_prompt_is_made_of_changes_the_key(other: Request) -> None:
    assert key(other).value != key(CONVERSATION).value
    assert key(other, TO_THE_END).value != key(CONVERSATION, TO_THE_END).value


def test_salt_affinity_and_model_do_not_stand_for_each_other() -> None:
    prompt = Prompt([turn("user", "Hi")])
    requests = [
        Request(prompt, model="x"),
        Request(prompt, model=None, cache_salt="x"),
        Request(prompt, model=None, affinity_id="x"),
        Request(replace(prompt, fields=(("x", b""),)), model=None),
    ]
    assert len({key(request).value for request in requests}) == len(requests)


def test_fields_are_hashed_whole_and_before_any_text_however_short_the_key_is() -> None:
    long = b"x" * 5000
    one, two = (chat(turn("user", "Hi"), tools=long + end) for end in (b"1", b"2"))
    short = PrefixRule(1, PrefixUnit.CHARACTERS)
    assert key(one, short).value != key(two, short).value
    assert key(one, short).counted == 1


@pytest.mark.parametrize("pair", [(("ab", "c"), ("a", "bc")), (("", "a"), ("a", "")), (("a",), ("a", ""))])
def test_pieces_have_bounds(pair: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    one, two = (chat(turn("user", *texts)) for texts in pair)
    assert key(one).value != key(two).value


def test_a_text_cannot_pretend_to_be_a_turn() -> None:
    honest = chat(turn("user", "a"), turn("user", "b"))
    forged = chat(turn("user", "a\udcffturn\udcfeuser\udcfe\udcffpart\udcfetext\udcfeb"))
    printed = chat(turn("user", "a<turn user>b"))
    assert prefix_key(forged, TO_THE_END, b"") is None
    assert key(printed, TO_THE_END).value != key(honest, TO_THE_END).value


def test_nothing_past_the_length_changes_the_key() -> None:
    rule = PrefixRule(2, anchor=PrefixAnchor.NONE)
    requests = [
        chat(turn("user", "12345678")),
        chat(turn("user", "12345678 and more")),
        chat(turn("user", "12345678", "another part")),
        chat(("user", [text("12345678"), media("http://x/1")])),
        chat(turn("user", "12345678"), turn("assistant", "another turn")),
    ]
    found = [key(request, rule) for request in requests]
    assert {one.value for one in found} == {found[0].value}
    assert {(one.counted, one.end) for one in found} == {(2, KeyEnd.LENGTH)}
    assert key(chat(turn("user", "1234567x")), rule).value != found[0].value
    assert key(chat(turn("user", "1234567")), rule).value != found[0].value


def test_a_prompt_shorter_than_the_length_is_hashed_to_its_end() -> None:
    found = key(CONVERSATION, TO_THE_END)
    assert (found.counted, found.end) == (3, KeyEnd.PROMPT)
    assert found.value == key(CONVERSATION, PrefixRule(2000, anchor=PrefixAnchor.NONE)).value


def test_the_anchor_is_the_end_of_the_first_user_turn() -> None:
    first = key(CONVERSATION)
    assert (first.counted, first.end) == (3, KeyEnd.ANCHOR)
    said = list(CONVERSATION.prompt.said if CONVERSATION.prompt else ())
    for more in (turn("assistant", "Hello!"), turn("user", "How are you?"), ("tool", [media("x")])):
        said.append(more)
        assert key(chat(*said)) == first
        assert key(chat(*said), TO_THE_END).value != first.value


def test_the_whole_first_user_turn_counts_with_all_of_its_parts() -> None:
    one, two = (chat(("user", [text("a"), media(url), text("b")])) for url in ("x", "y"))
    assert key(one).value != key(two).value


def test_a_chat_without_a_user_turn_is_hashed_to_its_end() -> None:
    assert key(chat(turn("system", "a"), turn("assistant", "b"))).end is KeyEnd.PROMPT
    assert key(chat(turn("", "a prompt without roles"))).end is KeyEnd.PROMPT


def test_a_first_user_turn_longer_than_the_length_is_cut() -> None:
    found = key(chat(turn("user", "x" * 100)), PrefixRule(5))
    assert (found.counted, found.end) == (5, KeyEnd.LENGTH)


def test_characters_and_tokens_are_counted_over_text_only() -> None:
    request = chat(("system" * 50, [media("http://x/" * 50), text("日本")]), turn("user", "語のAB"))
    rule = PrefixRule(5, PrefixUnit.CHARACTERS)
    assert key(request, rule).counted == 5
    other_end = chat(("system" * 50, [media("http://x/" * 50), text("日本")]), turn("user", "語のAx"))
    assert key(request, rule) == key(other_end, rule)


def test_media_are_hashed_to_their_last_character() -> None:
    data = "data:image/png;base64," + "QUJD" * 600_000
    one, two = (chat(("user", [media(data + end)])) for end in ("x", "y"))
    assert key(one, PrefixRule(1)).value != key(two, PrefixRule(1)).value


def test_exact_tokens_come_from_the_encoder() -> None:
    rule = PrefixRule(4, anchor=PrefixAnchor.NONE)
    one = key(chat(turn("user", "ab"), turn("assistant", "cd, and more")), rule, encoder=Letters())
    two = key(chat(turn("user", "ab"), turn("assistant", "cd")), rule, encoder=Letters())
    assert one == two
    assert (one.counted, one.end) == (4, KeyEnd.LENGTH)
    assert one.value != key(chat(turn("user", "ab"), turn("assistant", "cx")), rule, encoder=Letters()).value
    assert one.value != key(chat(turn("user", "abc"), turn("assistant", "d")), rule, encoder=Letters()).value


def test_in_a_prompt_of_ids_one_id_is_a_token_and_four_characters() -> None:
    ids = Request(Prompt(ids=list(range(100))))
    as_tokens = key(ids, PrefixRule(10))
    as_characters = key(ids, PrefixRule(37, PrefixUnit.CHARACTERS))
    assert (as_tokens.counted, as_tokens.end) == (10, KeyEnd.LENGTH)
    assert (as_characters.counted, as_characters.end) == (40, KeyEnd.LENGTH)
    assert as_tokens.value == as_characters.value
    assert key(ids, PrefixRule(101)).end is KeyEnd.PROMPT


def test_ids_are_told_apart_by_value_and_order_and_not_by_their_number() -> None:
    prompts = [[1, 2, 3], [1, 3, 2], [1, 2, 4], [1, 2], [2**32 - 1, 0, 3], [258, 3, 0]]
    assert len({key(Request(Prompt(ids=ids))).value for ids in prompts}) == len(prompts)


def test_bytes_are_those_of_the_raw_body_and_know_no_anchor() -> None:
    rule = PrefixRule(10, PrefixUnit.BYTES)
    found = key(CONVERSATION, rule, b"0123456789abc")
    assert (found.counted, found.end) == (10, KeyEnd.LENGTH)
    other = chat(turn("user", "Something else"), tools=b"[1]")
    assert key(other, rule, b"0123456789xyz") == found
    assert key(other, rule, b"012345678x") != found
    assert key(other, rule, bytearray(b"0123456789abc")) == found
    assert key(replace(other, model="n"), rule, b"0123456789").value != found.value
    assert key(replace(other, affinity_id="a"), rule, b"0123456789").value != found.value
    assert key(replace(other, cache_salt="s"), rule, b"0123456789").value != found.value


def test_a_body_shorter_than_the_length_is_hashed_to_its_end() -> None:
    found = key(CONVERSATION, PrefixRule(10, PrefixUnit.BYTES), b"012")
    assert (found.counted, found.end) == (3, KeyEnd.PROMPT)


@pytest.mark.parametrize("unit", list(PrefixUnit))
def test_without_a_prompt_there_is_no_key(unit: PrefixUnit) -> None:
    assert prefix_key(Request(None), PrefixRule(10, unit), b"body") is None
    assert hashed_text(Request(None), PrefixRule(10, unit), b"body") is None


class Unreadable(Prompt):
    def turns(self) -> Iterator[tuple[str, Sequence[tuple[str, str, bool]]]]:
        yield turn("system", "readable")
        raise ValueError("not a message")


def test_a_prompt_that_cannot_be_read_has_no_key() -> None:
    assert prefix_key(Request(Unreadable()), TOKENS, b"") is None
    assert hashed_text(Request(Unreadable()), TOKENS, b"") is None


def test_what_lies_past_the_end_need_not_be_readable() -> None:
    assert prefix_key(Request(Unreadable()), PrefixRule(2), b"") is not None


@pytest.mark.parametrize("request_", [chat(turn("user", "\ud800")), Request(Prompt(), model="\ud800")])
def test_text_that_is_not_unicode_has_no_key(request_: Request) -> None:
    assert prefix_key(request_, TOKENS, b"") is None


def test_the_hashed_text_is_what_was_hashed_and_no_more() -> None:
    request = Request(
        Prompt(
            [turn("system", "Be brief."), ("user", [media("http://x/1"), text("Hello")])],
            (("tools", b'[{"name":"f"}]'),),
        ),
        affinity_id="tenant",
    )
    assert hashed_text(request, PrefixRule(3), b"") == "\n".join(
        [
            "<field model>",
            "m",
            "<field affinity_id>",
            "tenant",
            "<field tools>",
            '[{"name":"f"}]',
            "<turn system>",
            "<part text>",
            "Be brief.",
            "<turn user>",
            "<part image_url>",
            "http://x/1",
            "<part text>",
            "Hel",
        ]
    )


def test_the_hashed_text_shows_long_media_by_size_and_digest() -> None:
    one, two = (
        hashed_text(chat(("user", [media("x" * 1000 + end)])), TOKENS, b"") or "" for end in ("a", "b")
    )
    assert "(1001 characters, XXH3 " in one
    assert one != two
    assert len(one) < 200


def test_the_hashed_text_of_exact_tokens_is_the_text_that_they_cover() -> None:
    shown = hashed_text(chat(turn("user", "abcdef")), PrefixRule(4), b"", Letters())
    assert shown is not None
    assert shown.endswith("<part text>\nabcd")


def test_the_hashed_text_of_ids_and_of_bytes_shows_them() -> None:
    ids = hashed_text(Request(Prompt(ids=[5, 6, 7])), PrefixRule(2), b"")
    assert ids == "<field model>\nm\n<ids>\n5 6"
    body = hashed_text(CONVERSATION, PrefixRule(5, PrefixUnit.BYTES), b'{"\xffab": 1}')
    assert body == '<field model>\nm\n<body>\n{"\ufffdab'


_PRINT_KEYS = """
import json, sys
from prefix_router.openai_api.request import parse
from prefix_router.routing.key import PrefixRule, PrefixUnit, prefix_key
body = json.dumps({"model": "m", "tools": [{"b": 1, "a": {"y": None, "x": 2}}],
                   "chat_template_kwargs": {name: 1 for name in {"p", "q", "r", "s"}},
                   "messages": [{"role": "user", "content": "H\u00e9"}]}).encode()
request = parse("/v1/chat/completions", None, body, {})
print(*(prefix_key(request, PrefixRule(99, unit), b"body") for unit in PrefixUnit))
"""


def test_the_key_is_the_same_in_every_process_under_every_hash_seed() -> None:
    def keys(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _PRINT_KEYS]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    found = {keys(seed) for seed in ("0", "1", "4242", "random")}
    assert len(found) == 1
    assert len(found.pop().split()) == len(PrefixUnit)


def test_a_key_can_be_made_in_steps_of_a_field_or_a_turn() -> None:
    request = chat(
        turn("system", "a"), turn("assistant", "b"), turn("user", "c"), turn("user", "d"), tools=b"[]"
    )
    steps = key_steps(request, TOKENS, b"")
    for _ in range(3):
        assert next(steps) is None
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == prefix_key(request, TOKENS, b"")
    assert end.value.value is not None
    with pytest.raises(StopIteration):
        next(key_steps(Request(prompt=None), TOKENS, b""))
