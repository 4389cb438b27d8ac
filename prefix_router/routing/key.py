"""The prefix key: a 64-bit hash of how a request begins.

What is hashed, in this order: model, cache salt and affinity id; the fields that shape the prompt as a whole
(tools, template arguments), each of them whole; then the turns, until N units of their text are used up, or
the first user turn ends (the anchor), or the prompt does. So two requests that differ in their tools differ
in their key however small N is, and whatever comes after the end cannot change it.

The anchor is the end of the first message of role `user`. A chat that is still shorter than N grows by every
turn, and a key over all of it would move with every turn; up to the anchor it stays as it is.

Units: `tokens` are four bytes of UTF-8 text each, or exact with a `TokenEncoder`; `characters` are code
points of the text; `bytes` are those of the raw body, without anchor and without a look at tools. In a prompt
of token ids one id is a token, and four characters. Only text counts: roles, media and names of calls do not.

How: each piece is a mark and its bytes, fed to XXH3 as they are. A mark begins with four 0xFF bytes, which
UTF-8 never has and no vocabulary reaches, so that ("ab", "c") and ("a", "bc") differ. Nothing marks the end
of a piece: a text that is cut at N is the same as one that ends there.

Keys must be the same in every process, on every host and in every later version: a router that is upgraded
before its neighbour would send each prefix to a second home. `tests/data/key_golden.json` pins them.
Cost: about 5 µs and the UTF-8 encoding of what is hashed; a long text is never encoded past N.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from prefix_router.routing.key_views import PromptView, RequestView, TokenEncoder
from prefix_router.routing.prefix_rule import (
    CHARACTERS_PER_TOKEN,
    PrefixAnchor,
    PrefixRule,
    PrefixUnit,
    TextSink,
    meter,
)

__all__ = [
    "VERSION",
    "KeyEnd",
    "PrefixAnchor",
    "PrefixKey",
    "PrefixRule",
    "PrefixUnit",
    "PromptView",
    "RequestView",
    "TokenEncoder",
    "hashed_text",
    "key_steps",
    "prefix_key",
]

VERSION = b"prefix key 1"
"""Hashed first. Another value moves every prefix of a fleet to another home."""

_MARK = b"\xff\xff\xff\xff"
_FIELD = _MARK + b"field\xfe"
_TURN = _MARK + b"turn\xfe"
_PART = _MARK + b"part\xfe"
_IDS = _MARK + b"ids\xfe"
_BODY = _MARK + b"body\xfe"

_SHOWN_CHARACTERS = 256
"""Longer texts that do not count (data of an image) are shown as size and digest."""


class KeyEnd(Enum):
    """What a key ended at."""

    LENGTH = "length"
    ANCHOR = "first_user_turn"
    PROMPT = "end_of_prompt"


class PrefixKey(NamedTuple):
    """A key. counted: how many units of text it covers (tokens rounded up). end: what it ended at."""

    value: int
    counted: int
    end: KeyEnd

    def __str__(self) -> str:
        return f"{self.value:016x}"


def prefix_key(
    request: RequestView, rule: PrefixRule, raw_body: bytes | bytearray, encoder: TokenEncoder | None = None
) -> PrefixKey | None:
    """Return the key of a request, or None when it has no prompt or one that cannot be read.

    raw_body is read for unit `bytes` only. encoder makes unit `tokens` exact.
    """
    steps = key_steps(request, rule, raw_body, encoder)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            key: PrefixKey | None = end.value
            return key


def key_steps(
    request: RequestView, rule: PrefixRule, raw_body: bytes | bytearray, encoder: TokenEncoder | None = None
) -> Generator[None, None, PrefixKey | None]:
    """Make the same as `prefix_key` in steps, one for each field and each turn, and return it."""
    if request.prompt is None:
        return None
    hasher = _Hasher()
    try:
        counted, end = yield from _cover(request, request.prompt, rule, raw_body, encoder, hasher)
    except ValueError:
        return None
    return PrefixKey(hasher.value(), counted, end)


def hashed_text(
    request: RequestView, rule: PrefixRule, raw_body: bytes | bytearray, encoder: TokenEncoder | None = None
) -> str | None:
    """Return exactly what `prefix_key` hashes in a form for people, or None where that returns None.

    One line per mark, in angle brackets, and after it the text; media as their size and a digest.
    """
    if request.prompt is None:
        return None
    printer = _Printer()
    try:
        for _ in _cover(request, request.prompt, rule, raw_body, encoder, printer):
            pass
    except ValueError:
        return None
    return printer.value()


class _Sink(TextSink, Protocol):
    """What becomes of the pieces: a hash, or a text for people."""

    def mark(self, mark: bytes, name: str) -> None:
        """Begin a piece."""

    def whole(self, text: str) -> None:
        """Take a text that does not count, however long it is."""

    def token_ids(self, ids: Sequence[int]) -> None:
        """Take token ids."""


def _cover(
    request: RequestView,
    prompt: PromptView,
    rule: PrefixRule,
    raw_body: bytes | bytearray,
    encoder: TokenEncoder | None,
    sink: _Sink,
) -> Generator[None, None, tuple[int, KeyEnd]]:
    """Hand everything that the key covers to `sink`, in order; return the units used and the end."""
    for name, value in (
        ("model", request.model),
        ("cache_salt", request.cache_salt),
        ("affinity_id", request.affinity_id),
    ):
        if value is not None:
            sink.mark(_FIELD, name)
            sink.whole(value)
    if rule.unit is PrefixUnit.BYTES:
        sink.mark(_BODY, "")
        sink.head(bytes(memoryview(raw_body)[: rule.length]))
        counted = min(rule.length, len(raw_body))
        return counted, KeyEnd.LENGTH if counted == rule.length else KeyEnd.PROMPT
    for name, canonical in prompt.preamble():
        sink.mark(_FIELD, name)
        sink.head(canonical)
        yield
    return _cover_ids(prompt, rule, sink) or (yield from _cover_turns(prompt, rule, encoder, sink))


def _cover_ids(prompt: PromptView, rule: PrefixRule, sink: _Sink) -> tuple[int, KeyEnd] | None:
    units_per_id = CHARACTERS_PER_TOKEN if rule.unit is PrefixUnit.CHARACTERS else 1
    limit = -(-rule.length // units_per_id)
    ids = prompt.token_ids(limit)
    if ids is None:
        return None
    sink.mark(_IDS, "")
    sink.token_ids(ids)
    return len(ids) * units_per_id, KeyEnd.LENGTH if len(ids) == limit else KeyEnd.PROMPT


def _cover_turns(
    prompt: PromptView, rule: PrefixRule, encoder: TokenEncoder | None, sink: _Sink
) -> Generator[None, None, tuple[int, KeyEnd]]:
    length = meter(rule, encoder, sink)
    for role, parts in prompt.turns():
        sink.mark(_TURN, role)
        for kind, text, counted in parts:
            if length.left == 0:
                break
            sink.mark(_PART, kind)
            if counted:
                length.take(text)
            else:
                sink.whole(text)
        # Decided before the next turn is asked for: one that is not covered is not decoded either.
        if length.left == 0:
            return length.used(), KeyEnd.LENGTH
        if role == "user" and rule.anchor is PrefixAnchor.FIRST_USER_TURN:
            return length.used(), KeyEnd.ANCHOR
        yield
    return length.used(), KeyEnd.PROMPT


class _Hasher:
    """The sink that makes the key: gathers all pieces and hashes them at once."""

    __slots__ = ("_pieces", "head")

    def __init__(self) -> None:
        self._pieces = [VERSION]
        self.head = self._pieces.append

    def mark(self, mark: bytes, name: str) -> None:
        self.head(_named_mark(mark, name))

    def whole(self, text: str) -> None:
        self.head(text.encode())

    def token_ids(self, ids: Sequence[int]) -> None:
        self.head(struct.pack(f"<{len(ids)}I", *ids))

    def tokens_of(self, text: str, ids: Sequence[int], encoder: TokenEncoder) -> None:
        self.token_ids(ids)

    def value(self) -> int:
        return xxh3_64_intdigest(b"".join(self._pieces))


@lru_cache(maxsize=256)
def _named_mark(mark: bytes, name: str) -> bytes:
    return mark + name.encode() + b"\xfe"


class _Printer:
    """The sink for people."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def mark(self, mark: bytes, name: str) -> None:
        kind = mark[len(_MARK) : -1].decode()
        self._lines.append(f"<{kind} {name}>" if name else f"<{kind}>")

    def whole(self, text: str) -> None:
        if len(text) > _SHOWN_CHARACTERS:
            text = f"({len(text)} characters, XXH3 {xxh3_64_hexdigest(text.encode())})"
        self._lines.append(text)

    def head(self, data: bytes) -> None:
        self._lines.append(data.decode("utf-8", "replace"))

    def token_ids(self, ids: Sequence[int]) -> None:
        self._lines.append(" ".join(map(str, ids)))

    def tokens_of(self, text: str, ids: Sequence[int], encoder: TokenEncoder) -> None:
        self._lines.append(text[: encoder.extent(text, len(ids))])

    def value(self) -> str:
        return "\n".join(self._lines)
