"""A prompt as the key reads it: fields that are hashed whole, then turns, or token ids.

A `Prompt` is a view of the request body: it decodes a turn when that turn is asked for. A key needs the
head of a conversation only, so most of a long one is never decoded. The view keeps the body alive; drop it
when the key is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from prefix_router.openai_api.allowance import Allowance
from prefix_router.openai_api.content import Part
from prefix_router.openai_api.raw_json import UNDECODABLE, is_present

_BYTES_PER_ID = 12
"""Ten digits, a comma and a space: reading this much finds the ids that are wanted, unless indented."""

_ids = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]])


class Turn(NamedTuple):
    """What one party says: the role as the request names it ("" where the API has none) and its parts."""

    role: str
    parts: Sequence[Part]


Reader: TypeAlias = Callable[[Any, Allowance], Turn]


class UnreadablePromptError(ValueError):
    """Part of the prompt is not what its API says it is, so that there is nothing to route by."""


class Prompt(msgspec.Struct, frozen=True):
    """The prompt of one request, decoded on demand.

    fields: what shapes the prompt as a whole (tools, template arguments), by name. opening: single values
    that come first, each with its reader. messages: the elements of an array, all read by `read_message`.
    ids: an array of token ids, which stand for everything else.
    """

    fields: tuple[tuple[str, Raw], ...] = ()
    opening: tuple[tuple[Reader, Raw], ...] = ()
    messages: Sequence[Any] = ()
    read_message: Reader | None = None
    ids: Raw | None = None

    def preamble(self) -> Iterator[tuple[str, bytes]]:
        """Yield the fields that are present, each in canonical form. Raises UnreadablePromptError."""
        allowance = Allowance()
        try:
            for name, value in self.fields:
                if is_present(value):
                    yield name, allowance.canonical(value)
        except UNDECODABLE as error:
            raise UnreadablePromptError from error

    def turns(self) -> Iterator[Turn]:
        """Yield the turns in order. Raises UnreadablePromptError at the first that cannot be read."""
        allowance = Allowance()
        try:
            for read, value in self.opening:
                yield read(value, allowance)
            if self.read_message is not None:
                for value in self.messages:
                    yield self.read_message(value, allowance)
        except UNDECODABLE as error:
            raise UnreadablePromptError from error

    def token_ids(self, limit: int) -> Sequence[int] | None:
        """Return the first `limit` token ids, or None when the prompt is text.

        Decodes little more than what it returns. Raises UnreadablePromptError when these are not all whole
        numbers from 0 to 2**32 - 1.
        """
        if self.ids is None:
            return None
        try:
            return _first_ids(self.ids, limit)
        except UNDECODABLE as error:
            raise UnreadablePromptError from error


def _first_ids(raw: Raw, limit: int) -> Sequence[int]:
    array = memoryview(raw)
    size = limit * _BYTES_PER_ID
    while size < len(array):
        # An array of numbers that is cut before a comma and closed again is the head of that array.
        head = bytes(array[:size])
        ids = _ids.decode(head[: max(head.rfind(b","), 1)] + b"]")
        if len(ids) >= limit:
            return ids[:limit]
        size *= 2
    return _ids.decode(array)[:limit]
