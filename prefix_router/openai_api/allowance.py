"""What one reading of a prompt may cost, whatever the client sends.

A key covers N units of text, but a body may hold any number of things that have no text: a million empty
parts, or objects whose members would have to be sorted. So each reading has an allowance for both. What goes
beyond it is read differently but still the same way each time: values stay as the client wrote them, and
parts are left off. No ordinary request comes near it.
"""

from __future__ import annotations

from msgspec import Raw

from prefix_router.openai_api.raw_json import canonical, string

MOST_CANONICAL_BYTES = 48 * 1024
"""JSON that is put in canonical form: about 1 ms for an ordinary schema, 4 ms for the worst there is."""

MOST_PARTS = 1024
"""Parts of turns, text or not: about 2 ms."""


class Allowance:
    """What is left for one reading. Make a new one for each."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._bytes = MOST_CANONICAL_BYTES
        self._parts = MOST_PARTS

    def part(self) -> bool:
        """Take one part; return whether there was one left."""
        self._parts -= 1
        return self._parts >= 0

    def canonical(self, value: Raw, without: frozenset[str] = frozenset()) -> bytes:
        """Return a value's canonical form while that is allowed, then the value as it is written.

        `without`: members of the value itself to leave out. Raises one of `UNDECODABLE`.
        """
        if len(value) > self._bytes:
            return bytes(value)
        self._bytes -= len(value)
        return canonical(value, without)

    def text(self, value: Raw) -> str:
        """Return a string's own text, anything else as JSON. Raises one of `UNDECODABLE`."""
        own = string(value)
        return self.canonical(value).decode() if own is None else own
