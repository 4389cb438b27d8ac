"""Find where JSON values end without decoding them, in steps that each look at a bounded slice of the bytes.

A decoder reads a whole document in one call, and nothing else runs meanwhile: a second for the worst 64 MB.
The methods here are generators instead. They yield now and then, with the number of bytes looked at since the
last time, so that their caller can let others run. What they return is the value of `yield from`.

Strings and containers are passed over by primitives that run at C speed (find, replace, split, translate),
slice by slice: 1 ms/MB for ordinary text, 25 ms/MB for the worst. What is passed over is not judged: only
quotes, escapes and brackets are looked at, and a bracket of either kind closes one of either kind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from itertools import accumulate
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Raw

SLICE_BYTES = 16 * 1024
"""The most that is looked at by one call of a primitive: about 2 ms for the worst there is."""

MOST_STEPS = 1 << 16
"""Places that take a step of Python's own: about half a second. A body that needs more is given up."""

_FIRST_BYTES = 1024
"""The first slice of a value: most are short. Those after it grow. It is gone through bracket by bracket."""
_STEP_COST_BYTES = 32
"""What a step of Python's own counts for."""
_WINDOW_BYTES = 4096
"""What is kept at hand of the place that is looked at."""
_BRACKETS_A_STEP = 16
_ROUNDS = 8
"""How many levels of nesting are folded by `replace`, before brackets are counted one by one."""

_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STRUCTURE = re.compile(rb'["\[\]{}]')
_NO_SCALAR = re.compile(rb'[ \t\n\r,:"\[\]{}]')
_BLANKS = b" \t\n\r"
_RISE = {ord("["): 1, ord("]"): -1}

T = TypeVar("T")
Steps: TypeAlias = Generator[int, None, T]
"""A piece of work that yields how many bytes it looked at, and returns a `T`."""


class MalformedError(ValueError):
    """The bytes are not JSON, as far as this module looks."""


class TooMuchError(ValueError):
    """The bytes would take more than `MOST_STEPS`."""


class ByteSource(Protocol):
    """Where the bytes of a document come from."""

    def __len__(self) -> int: ...

    def read(self, at: int, size: int) -> bytes:
        """Return the bytes from `at` on, at most `size`; fewer only at the end."""


class WholeBytes:
    """A document that is at hand as one object."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | bytearray | Raw) -> None:
        self._data = memoryview(data)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, at: int, size: int) -> bytes:
        """Return the bytes from `at` on, at most `size`."""
        return bytes(self._data[at : at + size])


def finish(steps: Steps[T]) -> T:
    """Do a piece of work at once and return what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


class JsonScan:
    """Walks over the bytes of one document. Positions are offsets in it. Use it for one walk at a time."""

    __slots__ = ("_spent", "_steps_left", "_window", "_window_at", "size", "source")

    def __init__(self, source: ByteSource, most_steps: int = MOST_STEPS) -> None:
        self.source = source
        self.size = len(source)
        self._window = b""
        self._window_at = 0
        self._spent = 0
        self._steps_left = most_steps

    def lead(self, at: int) -> int:
        """Return the byte at a position. Raises MalformedError at the end of the document."""
        if not 0 <= at - self._window_at < len(self._window):
            if at >= self.size:
                raise MalformedError("ends too soon")
            self._window, self._window_at = self.source.read(at, _WINDOW_BYTES), at
        return self._window[at - self._window_at]

    def spend(self, seen: int) -> Steps[None]:
        """Count a step that looked at `seen` bytes. Raises TooMuchError when there were too many steps."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooMuchError
        self._spent += seen + _STEP_COST_BYTES
        if self._spent >= SLICE_BYTES:
            spent, self._spent = self._spent, 0
            yield spent

    def blank(self, at: int) -> Steps[int]:
        """Return the position of the next byte that is not white space, which may be the end."""
        size = _FIRST_BYTES
        while at < self.size and self.lead(at) in _BLANKS:
            piece = self.source.read(at, size)
            yield from self.spend(len(piece))
            at += len(piece) - len(piece.lstrip(_BLANKS))
            size = SLICE_BYTES
        return at

    def first(self, at: int) -> Steps[tuple[int, int]]:
        """Return where the first element of the container at `at` is; if it is empty, -1 and the end."""
        at = yield from self.blank(at + 1)
        return (-1, at + 1) if self.lead(at) in b"]}" else (at, 0)

    def following(self, at: int) -> Steps[tuple[int, int]]:
        """Return where the element after the one that ends at `at` is; if there is none, -1 and the end."""
        at = yield from self.blank(at)
        if self.lead(at) in b"]}":
            return -1, at + 1
        if self.lead(at) != ord(","):
            raise MalformedError("no comma")
        return (yield from self.blank(at + 1)), 0

    def name(self, at: int) -> Steps[tuple[bytes, int]]:
        """Return the name of the member at `at` as it is written, quotes included, and its value's position.

        Of a name that is longer than any that is looked for, only the head is returned.
        """
        if self.lead(at) != ord('"'):
            raise MalformedError("no name")
        end = yield from self.string(at)
        colon = yield from self.blank(end)
        if self.lead(colon) != ord(":"):
            raise MalformedError("no colon")
        return self.source.read(at, min(end - at, _WINDOW_BYTES)), (yield from self.blank(colon + 1))

    def value(self, at: int, most: int = sys.maxsize) -> Steps[int]:
        """Return the end of the value at `at`, or -1 when it has more than `most` bytes, without going on."""
        lead = self.lead(at)
        if lead == ord('"'):
            end = yield from self.string(at, most)
        elif lead in b"[{":
            end = yield from self.rest(at + 1, most - 1)
        else:
            end = yield from self._scalar(at, most)
        return end if end - at <= most else -1

    def string(self, at: int, most: int = sys.maxsize) -> Steps[int]:
        """Return the end of the string at `at`; -1 or the end when it has more than `most` bytes."""
        last = at + most
        at += 1
        size = _FIRST_BYTES
        while at < last:
            masked = self._masked(at, size)
            yield from self.spend(len(masked))
            quote = masked.find(b'"')
            if quote >= 0:
                return at + quote + 1
            at += len(masked)
            size = min(size * 4, SLICE_BYTES)
        return -1

    def _scalar(self, at: int, most: int) -> Steps[int]:
        begin = at
        size = _FIRST_BYTES
        while at - begin <= most:
            piece = self.source.read(at, size)
            yield from self.spend(len(piece))
            match = _NO_SCALAR.search(piece)
            at += len(piece) if match is None else match.start()
            if at == begin:
                raise MalformedError("no value")
            if match is not None or at == self.size:
                return at
            size = SLICE_BYTES
        return -1

    def rest(self, at: int, most: int = sys.maxsize) -> Steps[int]:
        """Return the end of the container within which `at` is, outside of all that is in it.

        -1 or the end when that is more than `most` bytes away. A slice grows until it holds the end, and
        then it is halved.
        """
        last = at + most
        depth = 1
        in_string = False
        size = _FIRST_BYTES
        holds_end = False
        while at < last:
            masked = self._masked(at, size)
            yield from self.spend(len(masked))
            pieces = masked.split(b'"')
            brackets = b"".join(pieces[in_string::2]).translate(_BRACKETS, _OTHERS)
            net, lowest, counted = _weigh(brackets, depth)
            self._steps_left -= counted // _BRACKETS_A_STEP
            if depth + lowest > 0:
                depth += net
                in_string ^= len(pieces) % 2 == 0
                at += len(masked)
                if not holds_end:
                    size = min(size * 4, SLICE_BYTES)
            elif len(masked) > _FIRST_BYTES:
                holds_end = True
                size = len(masked) // 2
            else:
                self._steps_left -= len(brackets) // _BRACKETS_A_STEP
                return at + _end_within(masked, depth, in_string)
        return -1

    def _masked(self, at: int, size: int) -> bytes:
        """Return the bytes from `at` on, at most `size`, with a neutral pair for each escaped `\\` and `"`.

        A last backslash whose partner is not among them is left for the next slice.
        """
        # A run of backslashes begins with one that is not escaped itself: pairs are found from its left.
        found = self.source.read(at, size)
        if b"\\" in found:
            found = found.replace(rb"\\", b"__").replace(rb"\"", b"__")
            if found.endswith(b"\\"):
                found = found[:-1]
        if not found:
            raise MalformedError("ends too soon")
        return found


def _weigh(brackets: bytes, depth: int) -> tuple[int, int, int]:
    """Return how much deeper these brackets lead, the lowest they come on the way (at most 0), and the cost.

    depth: where they begin; the lowest is not exact where it cannot be the end. The cost is the number of
    brackets that had to be counted one by one.
    """
    closes = brackets.count(b"]")
    if closes < depth:
        return len(brackets) - 2 * closes, -closes, 0
    for _ in range(_ROUNDS):
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == before:
            break
    closes = brackets.count(b"]")
    net = len(brackets) - 2 * closes
    if brackets.startswith(b"]" * closes):
        return net, -closes, 0
    lowest = min(accumulate(map(_RISE.__getitem__, brackets)))
    return net, min(lowest, 0), len(brackets)


def _end_within(masked: bytes, depth: int, in_string: bool) -> int:
    """Return the end, within a short slice, of what is `depth` deep at its beginning."""
    end = 0
    for match in _STRUCTURE.finditer(masked):
        mark, end = match[0], match.end()
        if mark == b'"':
            in_string = not in_string
        elif not in_string:
            depth += 1 if mark in b"[{" else -1
            if depth == 0:
                break
    return end
