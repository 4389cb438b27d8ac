"""The length of a prefix: what it is counted in, where it may end early, and how texts use it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from prefix_router.routing.key_views import TokenEncoder

BYTES_PER_TOKEN = 4
CHARACTERS_PER_TOKEN = 4

_MOST_BYTES_PER_CHARACTER = 4
_MOST_BYTES_PER_EXACT_TOKEN = 64
_LEAST_EXACT_BYTES = 2048


class PrefixUnit(Enum):
    """What the length of a prefix is counted in. The values are configuration words."""

    TOKENS = "tokens"
    CHARACTERS = "characters"
    BYTES = "bytes"


class PrefixAnchor(Enum):
    """Where a key ends although its length is not used up. The values are configuration words."""

    FIRST_USER_TURN = "first_user_turn"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """How much of a request its key covers: `length` units, at most to the anchor. Length is at least 1."""

    length: int
    unit: PrefixUnit = PrefixUnit.TOKENS
    anchor: PrefixAnchor = PrefixAnchor.FIRST_USER_TURN

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"a prefix has at least 1 of its {self.unit.value}, not {self.length}")

    def head_bytes(self, *, exact: bool) -> int:
        """Return how many bytes (UTF-8) of one text can matter. exact: tokens are counted by an encoder.

        An encoder looks at the head of a text only, too; for exact tokens this is more than that.
        """
        if self.unit is PrefixUnit.CHARACTERS:
            return self.length * _MOST_BYTES_PER_CHARACTER
        if self.unit is PrefixUnit.BYTES:
            return 0
        if exact:
            return max(self.length * _MOST_BYTES_PER_EXACT_TOKEN, _LEAST_EXACT_BYTES)
        return self.length * BYTES_PER_TOKEN


class TextSink(Protocol):
    """Where the counted text goes."""

    def head(self, data: bytes) -> None:
        """Take UTF-8 text."""

    def tokens_of(self, text: str, ids: Sequence[int], encoder: TokenEncoder) -> None:
        """Take the first token ids of a text, which `encoder` made."""


class Meter:
    """Characters of text: hands each text to the sink as far as the length goes."""

    __slots__ = ("_length", "_sink", "left")

    def __init__(self, length: int, sink: TextSink) -> None:
        self._length = self.left = length
        self._sink = sink

    def take(self, text: str) -> None:
        """Hand on the head of `text` that still fits."""
        head = text[: self.left]
        self.left -= len(head)
        self._sink.head(head.encode())

    def used(self) -> int:
        """Return the units used so far."""
        return self._length - self.left


class EstimatedTokens(Meter):
    """Tokens of four bytes: cut at a byte, even within a character, so that all counts are equal."""

    __slots__ = ()

    def __init__(self, length: int, sink: TextSink) -> None:
        super().__init__(length * BYTES_PER_TOKEN, sink)

    def take(self, text: str) -> None:
        """Hand on the first bytes of `text` that still fit."""
        # A character has at least one byte, so that these many characters are enough.
        head = text[: self.left].encode()[: self.left]
        self.left -= len(head)
        self._sink.head(head)

    def used(self) -> int:
        """Return the tokens begun so far."""
        return -(-super().used() // BYTES_PER_TOKEN)


class ExactTokens(Meter):
    """Tokens as the model's tokenizer makes them, text by text."""

    __slots__ = ("_encoder",)

    def __init__(self, length: int, sink: TextSink, encoder: TokenEncoder) -> None:
        super().__init__(length, sink)
        self._encoder = encoder

    def take(self, text: str) -> None:
        """Hand on the first tokens of `text` that still fit."""
        ids = self._encoder.head(text, self.left)
        self.left -= len(ids)
        self._sink.tokens_of(text, ids, self._encoder)


def meter(rule: PrefixRule, encoder: TokenEncoder | None, sink: TextSink) -> Meter:
    """Return the meter for a rule of unit `tokens` or `characters`. encoder makes tokens exact."""
    if rule.unit is PrefixUnit.CHARACTERS:
        return Meter(rule.length, sink)
    if encoder is None:
        return EstimatedTokens(rule.length, sink)
    return ExactTokens(rule.length, sink, encoder)
