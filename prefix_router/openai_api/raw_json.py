"""JSON values that are not decoded until somebody asks for them.

A request body may have megabytes of conversation of which a key needs the first few kilobytes. msgspec hands
out a value as `Raw`, a window on the body: finding its end costs one pass (about 2 GB/s on ASCII) and builds
nothing. So the cost of a body is that pass, plus the decoding of what is really read.

Of an array of messages, only the first `MOST_ITEMS` elements are looked at (`Head`) and the rest is passed
over, so that the number of elements does not matter either.

Decoding raises one of `UNDECODABLE` and nothing else, whatever the bytes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

UNDECODABLE = (ValueError, RecursionError)
"""All that decoding arbitrary bytes raises: not JSON, not UTF-8, another type than asked for; too deep."""

ABSENT = Raw(b"null")
"""The value of a field that is not there: the same as null."""

MOST_ITEMS = 64
"""Elements of an array of messages, content parts or tool calls that are looked at."""

_NEAR_BYTES = 64

_END = Raw(b"")
"""Stands where an array has no element."""


def array_head(name: str, first: type, typed: int) -> type:
    """Return a type for the head of an array: `typed` elements of type `first`, the others undecoded.

    An array-like struct is the one type that msgspec fills from an array without building all of it.
    """
    types = [first] * typed + [Raw] * (MOST_ITEMS - typed)
    members = [(f"item_{index}", kind, _END) for index, kind in enumerate(types)]
    return msgspec.defstruct(name, members, array_like=True)


if TYPE_CHECKING:

    class Head(msgspec.Struct, array_like=True):
        """The first `MOST_ITEMS` elements of a JSON array, undecoded."""

else:
    Head = array_head("Head", Raw, 0)


class _First(msgspec.Struct, array_like=True):
    item: Raw = _END


_first = msgspec.json.Decoder(_First)
_string = msgspec.json.Decoder(str)
_anything = msgspec.json.Decoder()
_canonical = msgspec.json.Encoder(order="sorted")


def items(head: msgspec.Struct | None) -> tuple[Any, ...]:
    """Return the elements that the head of an array holds, at most `MOST_ITEMS`."""
    if head is None:
        return ()
    elements = msgspec.structs.astuple(head)
    return elements if elements[-1] is not _END else elements[: elements.index(_END)]


def first_item(array: Raw) -> Raw:
    """Return the first element of an array, `ABSENT` if it has none."""
    item = _first.decode(array).item
    return ABSENT if item is _END else item


def first_lead(array: Raw) -> str:
    """Return the first character of the first element of an array, or "]" or "n" if it has none."""
    near = bytes(memoryview(array)[1:_NEAR_BYTES]).lstrip()
    return chr(near[0]) if near else lead(first_item(array))


def lead(value: Raw) -> str:
    """Return the first character of a value, which tells its type."""
    return chr(memoryview(value)[0])


def is_present(value: Raw) -> bool:
    """Whether a value is anything but null."""
    return value is not ABSENT and lead(value) != "n"


def string(value: Raw) -> str | None:
    """Return the value if it is a string, else None. Raises ValueError when it is not valid UTF-8."""
    if value is ABSENT or lead(value) != '"':
        return None
    return _string.decode(value)


def canonical(value: Raw, without: frozenset[str] = frozenset()) -> bytes:
    """Return one spelling for all equal values: members sorted, no white space, no members that are null.

    `without`: members of the value itself to leave out. Raises one of `UNDECODABLE`.
    """
    written = bytes(value)
    built = _anything.decode(written)
    if without and isinstance(built, dict):
        built = {name: member for name, member in built.items() if name not in without}
    if b"null" in written:
        built = _without_nulls(built)
    return _canonical.encode(built)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(element) for element in value]
    return value
