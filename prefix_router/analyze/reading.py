"""Reads files of recorded traffic, line by line, and keeps account of what could not be used.

A file is plain or compressed (gzip); `-` is standard input. What it holds is told by its first line: a
capture has a head. Lines that are no requests are counted by cause, with the numbers of the first few, so
that somebody can look at them; nothing of their text is kept. Memory: one line, of at most
`MOST_LINE_BYTES`.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from prefix_router.analyze.bodies import read_body
from prefix_router.analyze.captures import is_head, read_captured, read_head
from prefix_router.analyze.record import UnusableLineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prefix_router.analyze.record import RecordedRequest

STANDARD_INPUT = "-"
MOST_LINE_BYTES = 1 << 26
"""A longer line is skipped; the router takes no larger bodies either, by default."""

SHOWN_LINES = 5
"""Of each cause."""

_GZIP = b"\x1f\x8b"


class InputError(Exception):
    """A file that cannot be read at all, or has nothing in it. The message names it."""


@dataclass(slots=True)
class Unusable:
    """Lines that are no requests, of one cause. first: where the first few are, as `FILE:NUMBER`."""

    count: int = 0
    first: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """Reads `files` once, by `requests`, and says afterwards what it met.

    path: of bodies that do not say it. lines: that were not blank, heads left out. captured: whether any
    file is a capture. sample: the smallest part of the conversations that a capture has.
    """

    files: Sequence[str]
    path: str | None = None
    lines: int = 0
    unusable: dict[str, Unusable] = field(default_factory=dict)
    captured: bool = False
    sample: float = 1.0

    @property
    def unusable_lines(self) -> int:
        """How many lines are no requests."""
        return sum(unusable.count for unusable in self.unusable.values())

    def requests(self) -> Iterator[RecordedRequest]:
        """The requests, in the order of the lines. Raises InputError."""
        for file in self.files:
            yield from self._requests_of(file)

    def _requests_of(self, file: str) -> Iterator[RecordedRequest]:
        captured = False
        for number, line in _lines(file):
            if number == 1 and is_head(line):
                self._begin_capture(file, line)
                captured = True
                continue
            self.lines += 1
            try:
                if len(line) > MOST_LINE_BYTES:
                    raise UnusableLineError(f"longer than {MOST_LINE_BYTES >> 20} MiB")
                yield read_captured(line, self.lines) if captured else read_body(line, self.path)
            except UnusableLineError as error:
                unusable = self.unusable.setdefault(error.cause, Unusable())
                unusable.count += 1
                if len(unusable.first) < SHOWN_LINES:
                    unusable.first.append(f"{file}:{number}")

    def _begin_capture(self, file: str, line: bytes) -> None:
        try:
            head = read_head(line)
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None
        self.captured = True
        self.sample = min(self.sample, head.sample)


def _lines(file: str) -> Iterator[tuple[int, bytes]]:
    """Numbers, from 1, and contents of the lines that are not blank; of one that is too long, its head."""
    number = 0
    try:
        with ExitStack() as stack:
            for number, line in _numbered(_open(file, stack)):
                if line := line.strip():
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{file}: the compressed file is damaged after line {number}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def _open(file: str, stack: ExitStack) -> BinaryIO:
    if file == STANDARD_INPUT:
        raw: BinaryIO = sys.stdin.buffer
    else:
        raw = stack.enter_context(open(file, "rb"))  # noqa: SIM115  (the stack closes it)
    peeked = raw.peek(len(_GZIP)) if hasattr(raw, "peek") else b""
    if peeked.startswith(_GZIP):
        return cast("BinaryIO", stack.enter_context(gzip.open(raw)))
    return raw


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        yield number, line
        while not line.endswith(b"\n") and len(line) > MOST_LINE_BYTES:
            line = stream.readline(MOST_LINE_BYTES + 1)
