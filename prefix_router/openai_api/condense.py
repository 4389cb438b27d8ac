"""A large request body, made small: another body that has the same key.

A key needs the head of a conversation and a few fields. For a large body these are found by a scan that takes
turns with other work (`json_scan`), and written into a small body of the same shape, which is then read like
any other. So there is one reading of bodies, and a conversation keeps its key when it outgrows `LARGE_BYTES`.

What fits into a body that is not large is kept as it is written. Only what cannot be part of such a body is
made shorter, so that it does not matter that this changes what it hashes to:

- A long string keeps its head, as much as a key can cover of a text, and gets a digest of its bytes: right
  for a text, of which the key covers no more, and for the data of an image, which are known by all of it.
- Of a long conversation the first elements are kept, 64 of them as everywhere, and twice as many bytes as a
  body that is not large can have. Of a long element the same, with a tighter measure for what is in it.
- Any other long field (tools, documents) becomes a digest of its bytes.

The digest is of bytes as they are written: two spellings of a long value are two values. What is left out is
not judged: a body with a flaw there may have a key although it is not JSON, and vLLM says so.

A body that is not much too large is not scanned but decoded into undecoded fields, which takes less time in
all and not too much at once. Nothing else depends on that.

Cost: one pass of the scan, in steps, and one more over long strings and fields for their digests; the result
has little more than `MOST_ROOMS` times `LARGE_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from prefix_router.openai_api.dialects import Body
from prefix_router.openai_api.json_scan import (
    MOST_STEPS,
    ByteSource,
    JsonScan,
    MalformedError,
    Steps,
    TooMuchError,
    WholeBytes,
)
from prefix_router.openai_api.raw_json import ABSENT, UNDECODABLE, Head, items, lead
from prefix_router.openai_api.shorten import SMALL_BYTES, Measure, Shortener, Value

LARGE_BYTES = 64 * 1024
"""A longer body is condensed. Reading a shorter one at once takes 4 ms for the worst there is."""

MOST_DECODED_BYTES = 448 * 1024
"""A longer body is scanned. Decoding the fields of a shorter one takes 3.5 ms for the worst there is."""

LEAST_HEAD_BYTES = 1024
"""A string keeps no less, so that it stays too long for an id of any kind."""

MOST_ROOMS = 4
"""All conversations of a body together get this much room, in `LARGE_BYTES`, and one of them half of it.
The element that uses up the last of the room is still written."""

_CONVERSATIONS = (
    "system",
    "instructions",
    "messages",
    "input",
    "prompt",
    "prompt_token_ids",
    "token_ids",
    "input_ids",
)
"""Fields that have a head: what comes later in them does not matter. The others are known by all they are."""

_NAMES = {b'"%b"' % name.encode(): name for name in Body.__struct_fields__}
_MOST_NAME_BYTES = 256

_name = msgspec.json.Decoder(str)
_array = msgspec.json.Decoder(Head)
_outline = msgspec.json.Decoder(
    msgspec.defstruct("_Outline", [(name, Raw, ABSENT) for name in _NAMES.values()])
)


class Condensed(NamedTuple):
    """A small body. complete: False when the large one was given up, so that only its model may be known."""

    body: bytes
    complete: bool = True


class Limits(NamedTuple):
    """What one reading may cost. The values are those of the module; a test has reasons for others."""

    large_bytes: int = LARGE_BYTES
    most_decoded_bytes: int = MOST_DECODED_BYTES
    most_steps: int = MOST_STEPS


def condense(body: ByteSource, head_bytes: int, limits: Limits | None = None) -> Steps[Condensed]:
    """Return a small body with the same key; see the module. Never raises.

    head_bytes: how much of one text (UTF-8) a key can cover. Of bytes that are not an object, something is
    returned that is not one either.
    """
    limits = limits or Limits()
    head_bytes = max(head_bytes, LEAST_HEAD_BYTES)
    writer = _Writer(Measure(head_bytes, max(head_bytes, limits.large_bytes)))
    try:
        outline = None
        if len(body) <= limits.most_decoded_bytes:
            yield 0  # so that it begins with a turn
            outline = _outline_of(body.read(0, len(body)))
        if outline is not None:
            yield len(body)
            yield from writer.take_outline(outline)
        elif not (yield from writer.scan_document(JsonScan(body, limits.most_steps))):
            return Condensed(b"[]")
        return Condensed((yield from writer.document()))
    except MalformedError:
        return Condensed(b"")
    except TooMuchError:
        return Condensed(writer.model(), complete=False)


def _outline_of(body: bytes) -> Mapping[str, Raw] | None:
    """Return the fields of a body, undecoded; None when it is not the JSON of an object."""
    try:
        outline: Any = _outline.decode(body)
    except UNDECODABLE:
        return None
    fields = zip(_NAMES.values(), msgspec.structs.astuple(outline), strict=True)
    return {name: value for name, value in fields if value is not ABSENT}


def _field(written: bytes) -> str | None:
    name = _NAMES.get(written)
    if name is None and b"\\" in written and len(written) <= _MOST_NAME_BYTES:
        try:
            name = _NAMES.get(b'"%b"' % _name.decode(written).encode())
        except ValueError as error:
            raise MalformedError("bad name") from error
    return name


def _joined(fields: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields)


class _Writer:
    """Gathers the fields of a body, and writes a small one of them."""

    __slots__ = ("_conversations", "_measure", "_others")

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._conversations: dict[str, bytes] = {}
        self._others: dict[str, Value] = {}

    def take_outline(self, outline: Mapping[str, Raw]) -> Steps[None]:
        """Take the fields of a decoded body."""
        for name, raw in outline.items():
            if name in _CONVERSATIONS:
                self._conversations[name] = yield from self._conversation(raw)
            else:
                self._others[name] = Value(JsonScan(WholeBytes(raw)), 0, len(raw))

    def _conversation(self, raw: Raw) -> Steps[bytes]:
        if len(raw) <= self._measure.large_bytes:
            return bytes(raw)
        source = WholeBytes(raw)
        shortener = self._shortener()
        if lead(raw) == "[" and shortener.numbers(source, 0) is None:
            elements = items(_array.decode(raw))
            yield len(raw)
            return (yield from shortener.array_of(elements))
        written, _ = yield from self._shortener().value(JsonScan(source), 0, depth=0)
        return written

    def scan_document(self, scan: JsonScan) -> Steps[bool]:
        """Take the fields of a document; return whether it is an object. Raises the errors of `json_scan`."""
        start = yield from scan.blank(0)
        is_object = scan.lead(start) == ord("{")
        end = yield from (self._scan_fields(scan, start) if is_object else scan.value(start))
        if (yield from scan.blank(end)) != scan.size:
            raise MalformedError("bytes after the end")
        return is_object

    def _scan_fields(self, scan: JsonScan, start: int) -> Steps[int]:
        at, end = yield from scan.first(start)
        while at >= 0:
            written, value = yield from scan.name(at)
            name = _field(written)
            if name in _CONVERSATIONS:
                self._conversations[name], end = yield from self._shortener().value(scan, value, depth=0)
            else:
                end = yield from scan.value(value)
                if name is not None:
                    self._others[name] = Value(scan, value, end)
            at, end = yield from scan.following(end)
        return end

    def _shortener(self) -> Shortener:
        return Shortener(self._measure, 2 * self._measure.large_bytes)

    def document(self) -> Steps[bytes]:
        """Return the small body."""
        large = self._measure.large_bytes
        # Many fields that are nearly long are as bad as a long one, and as little part of a body that is not.
        crowded = sum(value.size for value in self._others.values()) > large
        long = large // len(_NAMES) if crowded else large
        written: dict[str, bytes] = {}
        for name in _NAMES.values():
            value = self._others.get(name)
            if value is not None:
                short = value.size <= long
                written[name] = value.written() if short else (yield from self._shortener().sealed(value))
        room = MOST_ROOMS * large
        for name in _CONVERSATIONS:
            if name in self._conversations and room > 0:
                written[name] = self._conversations[name]
                room -= len(written[name])
        return _joined(written.items())

    def model(self) -> bytes:
        """Return a document of the fields that do not make a prompt, as far as they were found."""
        found = ((name, self._others[name]) for name in ("model", "stream") if name in self._others)
        return _joined((name, value.written()) for name, value in found if value.size <= SMALL_BYTES)
