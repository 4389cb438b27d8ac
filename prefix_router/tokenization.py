"""Exact token counts: the head of a text, in the tokens of the model.

Needs the extra `prefix_router[tokenizer]` and the model's `tokenizer.json`; both are looked at only when
somebody asks for a `HeadTokenizer`.

A key needs the first N tokens of texts that may have a million, and a tokenizer reads a megabyte or two a
second: so only a window at the head is encoded, and it is doubled until it holds N tokens and `MARGIN` more.
The last tokens of a window that was cut are not the text's own (a word is broken there), so they are not
used. How far back a cut is felt depends on the tokenizer: one word if it splits at white space, a few tokens
if it merges or scores across it. `MARGIN` is well beyond both.

Cost: all windows together have at most twice the characters of the last, and that has at most
`MOST_CHARACTERS_PER_TOKEN` for each token that is wanted. Only text that is nearly all blanks needs so many;
what lies beyond does not count there, because a megabyte of blanks takes seconds to encode.

The ids are those of the text alone, without special tokens: what a chat template puts around it is the same
for equal requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MARGIN = 64
"""Tokens at the end of a cut window that are not trusted."""

MOST_CHARACTERS_PER_TOKEN = 32
"""The window grows no further than this for each token that is wanted."""

_FIRST_CHARACTERS_PER_TOKEN = 4
_FEWEST_CHARACTERS = 512


class TokenizerError(Exception):
    """There is no usable tokenizer; the message says what to do."""


class HeadTokenizer:
    """The tokenizer of one model, for the heads of texts. Safe to use from several threads."""

    def __init__(self, path: str | Path) -> None:
        """Load a `tokenizer.json`. Raises TokenizerError."""
        self.path = str(path)
        self._tokenizer = load_tokenizer(Path(path))

    def head(self, text: str, limit: int) -> tuple[int, ...]:
        """Return the first `limit` token ids of `text`, all of them if it has no more."""
        return tuple(self._encode_head(text, limit).ids[:limit])

    def extent(self, text: str, tokens: int) -> int:
        """Return how many characters of `text` its first `tokens` tokens cover: for people, not for keys."""
        offsets = self._encode_head(text, tokens).offsets[:tokens]
        return max((end for _, end in offsets), default=0)

    def _encode_head(self, text: str, limit: int) -> Encoding:
        """Return an encoding whose first `limit` tokens are those of the whole text."""
        window = max(limit * _FIRST_CHARACTERS_PER_TOKEN, _FEWEST_CHARACTERS)
        widest = max(limit * MOST_CHARACTERS_PER_TOKEN, _FEWEST_CHARACTERS)
        while window < len(text):
            encoding = self._tokenizer.encode(text[:window], add_special_tokens=False)
            if len(encoding.ids) >= limit + MARGIN or window >= widest:
                return encoding
            window *= 2
        return self._tokenizer.encode(text, add_special_tokens=False)


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json`, for whole texts. Raises TokenizerError."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerError(
            "exact tokens need the package tokenizers: install prefix_router[tokenizer]"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # it raises bare Exception for whatever is wrong with a file
        raise TokenizerError(f"cannot read the tokenizer {path}: {error}") from error
    # A file may say how its model's inputs are cut and filled up; neither belongs to the text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
