"""What became of one request, on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.validation.sequence import Kind


@dataclass(frozen=True, slots=True)
class Served:
    """A request as the real side served it.

    number: its place in the sequence. prompt, answer: token ids. cached_tokens: as vLLM's usage says.
    backend: who served it, as the router named it; None where there was no router.
    """

    number: int
    kind: Kind
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    cached_tokens: int
    backend: str | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """The same request as the model served it."""

    cached_tokens: int
    backend: str | None = None
