"""What the key sees of a request, and of a tokenizer.

The decision knows no wire format and no tokenizer: `openai_api` and `tokenization` provide what fits these
protocols, and a test or a simulator can provide it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol


class TokenEncoder(Protocol):
    """The tokenizer of the model, without special tokens."""

    def head(self, text: str, limit: int) -> Sequence[int]:
        """Return the first `limit` token ids of a text, or all of them."""

    def extent(self, text: str, tokens: int) -> int:
        """Return how many characters of a text its first `tokens` tokens cover."""


class PromptView(Protocol):
    """A prompt as the key reads it. Its methods raise ValueError when the prompt cannot be read."""

    def preamble(self) -> Iterable[tuple[str, bytes]]:
        """Return the fields that shape the whole prompt: name and canonical value."""

    def token_ids(self, limit: int) -> Sequence[int] | None:
        """Return the first `limit` ids of a prompt of token ids (each below 2**32); None if it is text."""

    def turns(self) -> Iterator[tuple[str, Sequence[tuple[str, str, bool]]]]:
        """Yield each turn as role and parts; a part is its kind, its text, and whether that text counts."""


class RequestView(Protocol):
    """A request as the key reads it."""

    @property
    def model(self) -> str | None:
        """The model or adapter that is asked for."""

    @property
    def cache_salt(self) -> str | None:
        """vLLM reuses no block across salts."""

    @property
    def affinity_id(self) -> str | None:
        """An id of the client's that narrows the key."""

    @property
    def prompt(self) -> PromptView | None:
        """The prompt; None if there is none."""
