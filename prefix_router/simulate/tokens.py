"""Pseudo-tokens: four bytes of UTF-8 are one token.

Four bytes are about what a token of English is, equal beginnings of text give equal tokens, and a token is
exactly one 32-bit id, so that text, its bytes and its token ids are three views of the same thing. No
vocabulary, no model files, and cutting 32 KB of text into tokens costs nothing at all.

Text that does not fill its last token is padded with zero bytes, which decoding drops. Generated text is
made of four-byte words: an answer that comes back in the next turn of a conversation has the very tokens it
was generated with, as it has with a real tokenizer.
"""

from __future__ import annotations

from array import array

from prefix_router.engine.block_hash import BYTES_PER_TOKEN

_WORDS = (
    b"the and for are but not you all can her was one our out day get has him his how man new now old see "
    b"two way who boy did its let put say she too use any ask big box car cup end eye far few got hot "
)
_WORD_COUNT = len(_WORDS) // BYTES_PER_TOKEN
# A stride that shares no factor with the word count visits every word before it repeats itself.
_STRIDE = 17


def encode(text: str) -> bytes:
    """The tokens of `text`, four bytes each."""
    return pad(text.encode())


def decode(tokens: bytes) -> str:
    """The text of `tokens`; what is not UTF-8 becomes replacement characters."""
    return tokens.replace(b"\0", b"").decode("utf-8", "replace")


def pad(data: bytes) -> bytes:
    """`data` up to the next token boundary."""
    return data + bytes(-len(data) % BYTES_PER_TOKEN)


def count(tokens: bytes) -> int:
    """How many tokens there are."""
    return len(tokens) // BYTES_PER_TOKEN


def to_ids(tokens: bytes) -> list[int]:
    """The 32-bit token ids. The way back is `engine.block_hash.pack_token_ids`."""
    return array("I", tokens).tolist()


def generate(seed: int, length: int) -> bytes:
    """`length` tokens of dull words; equal seeds give equal words."""
    period = b"".join(_word(seed + _STRIDE * index) for index in range(min(length, _WORD_COUNT)))
    repeats = -(-length // _WORD_COUNT)
    return (period * repeats)[: length * BYTES_PER_TOKEN]


def _word(number: int) -> bytes:
    start = number % _WORD_COUNT * BYTES_PER_TOKEN
    return _WORDS[start : start + BYTES_PER_TOKEN]
