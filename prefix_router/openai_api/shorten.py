"""A long JSON value, made short: what of it a key can depend on.

A string keeps its head and gets a digest of its bytes. Of an array the first elements are kept, of an object
the first members, each of them made short in the same way, until the room is used up. A value that is not
long is kept as it is written. So what becomes of a value depends on the value, and on the room that those
before it have left.

All is done in steps that look at a bounded slice of the bytes (`json_scan`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Raw
from xxhash import xxh3_128

from prefix_router.openai_api.json_scan import SLICE_BYTES, ByteSource, JsonScan, Steps, WholeBytes
from prefix_router.openai_api.raw_json import MOST_ITEMS

SMALL_BYTES = 256
"""Roles, types and names: kept although there is no room, because what they stand with depends on them."""

_MOST_ESCAPED_BYTES = 6
"""A character that is written as an escape takes this many bytes for each byte of its UTF-8, at most."""
_ID_BYTES_PER_HEAD_BYTE = 3
"""A token id takes 12 bytes at most, and covers four bytes of text at least."""
_MOST_NAME_BYTES = 256
_WITHIN_LONG = 16
"""Within an element that is long itself, this part of the measure counts as long."""
_MOST_DEPTH = 8
_MARGIN_BYTES = 16
"""More than the longest character: an escaped pair of surrogates has 12 bytes."""

_NUMBERS = re.compile(rb"\[[ \t\n\r]*+(?:[-+.0-9eE]++[ \t\n\r]*+,[ \t\n\r]*+)++")
_WHOLE_CHARACTERS = re.compile(
    rb"(?:[^\\]++"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\[^u])*+",
    re.DOTALL,
)


class Measure(NamedTuple):
    """What is long. head_bytes: what a long string keeps. large_bytes: what has no more is not long."""

    head_bytes: int
    large_bytes: int


class Value(NamedTuple):
    """Where a value is."""

    scan: JsonScan
    start: int
    end: int

    @property
    def size(self) -> int:
        """Return how many bytes it is written with."""
        return self.end - self.start

    def written(self) -> bytes:
        """Return it as it is written."""
        return self.scan.source.read(self.start, self.size)


class Shortener:
    """Writes values as they are or shorter. room: how many bytes may be written; what begins is finished."""

    __slots__ = ("_measure", "room")

    def __init__(self, measure: Measure, room: int = 0) -> None:
        self._measure = measure
        self.room = room

    def value(self, scan: JsonScan, at: int, depth: int) -> Steps[tuple[bytes, int]]:
        """Return a value, as it is if it is not long and there is room, and its end in the large body."""
        long = self._measure.large_bytes if depth <= 1 else self._measure.large_bytes // _WITHIN_LONG
        end = yield from scan.value(at, long if self.room > 0 else SMALL_BYTES)
        if end >= 0:
            written = Value(scan, at, end).written()
        elif self.room <= 0:
            return b"null", (yield from scan.value(at))
        elif scan.lead(at) == ord("[") and depth < _MOST_DEPTH:
            return (yield from self._array(scan, at, depth))
        elif scan.lead(at) == ord("{") and depth < _MOST_DEPTH:
            return (yield from self._object(scan, at, depth))
        else:
            end = yield from scan.value(at)
            written = yield from self.sealed(Value(scan, at, end))
        self.room -= len(written)
        return written, end

    def _array(self, scan: JsonScan, at: int, depth: int) -> Steps[tuple[bytes, int]]:
        numbers = self.numbers(scan.source, at)
        if numbers is not None:
            return numbers, (yield from scan.value(at))
        elements: list[bytes] = []
        at, end = yield from scan.first(at)
        while at >= 0:
            if len(elements) == MOST_ITEMS or self.room <= 0:
                end = yield from scan.rest(at)
                break
            written, end = yield from self.value(scan, at, depth + 1)
            elements.append(written)
            at, end = yield from scan.following(end)
        return b"[%b]" % b",".join(elements), end

    def array_of(self, elements: Iterable[Raw]) -> Steps[bytes]:
        """Return what `value` returns for a long array at depth 0. elements: the first of it."""
        written: list[bytes] = []
        for element in elements:
            if self.room <= 0:
                break
            if len(element) <= self._measure.large_bytes:
                written.append(bytes(element))
                self.room -= len(element)
            else:
                shorter, _ = yield from self.value(JsonScan(WholeBytes(element)), 0, depth=1)
                written.append(shorter)
        return b"[%b]" % b",".join(written)

    def numbers(self, source: ByteSource, at: int) -> bytes | None:
        """Return the head of an array that begins with numbers: as token ids do."""
        room = max(
            min(self.room, self._measure.large_bytes), self._measure.head_bytes * _ID_BYTES_PER_HEAD_BYTE
        )
        match = _NUMBERS.match(source.read(at, room))
        if match is None:
            return None
        written = match[0].rstrip(b" \t\n\r,") + b"]"
        self.room -= len(written)
        return written

    def _object(self, scan: JsonScan, at: int, depth: int) -> Steps[tuple[bytes, int]]:
        members: list[bytes] = []
        at, end = yield from scan.first(at)
        while at >= 0:
            if len(members) == MOST_ITEMS:
                end = yield from scan.rest(at)
                break
            name, value = yield from scan.name(at)
            written, end = yield from self.value(scan, value, depth + 1)
            members.append(b"%b:%b" % (name if len(name) <= _MOST_NAME_BYTES else b'""', written))
            at, end = yield from scan.following(end)
        return b"{%b}" % b",".join(members), end

    def sealed(self, value: Value) -> Steps[bytes]:
        """Return what stands for all of a value, and is of the same type."""
        lead = value.scan.lead(value.start)
        if lead == ord('"'):
            return (yield from self._string(value))
        if lead not in b"[{":
            return b"null"  # a number or a word that nobody means
        digest = yield from self._digest(value)
        return b'["%b"]' % digest if lead == ord("[") else b'{"":"%b"}' % digest

    def _string(self, value: Value) -> Steps[bytes]:
        """Return the head of a string and a digest of it, or the string if that would not be less."""
        wanted = self._measure.head_bytes + _MARGIN_BYTES
        head = value.scan.source.read(value.start + 1, wanted)
        if b"\\" in head:
            wanted = self._measure.head_bytes * _MOST_ESCAPED_BYTES + _MARGIN_BYTES
            head = value.scan.source.read(value.start + 1, wanted)
        if value.size <= wanted:
            return value.written()
        return b'"%b%b"' % (_whole_characters(head), (yield from self._digest(value)))

    def _digest(self, value: Value) -> Steps[bytes]:
        digest = xxh3_128()
        for at in range(value.start, value.end, SLICE_BYTES):
            piece = value.scan.source.read(at, min(SLICE_BYTES, value.end - at))
            digest.update(piece)
            yield from value.scan.spend(len(piece))
        return digest.hexdigest().encode()


def _whole_characters(head: bytes) -> bytes:
    """Leave off what of a string's head is the beginning of an escape, of a pair of them or of UTF-8."""
    match = _WHOLE_CHARACTERS.match(head)
    if match is not None and len(head) - match.end() < _MARGIN_BYTES:  # else a bad escape: let it be found
        head = match[0]
    for back in range(1, 4):
        if head[-back] >= 0xC0:
            return head[:-back]
        if head[-back] < 0x80:
            break
    return head
