"""The lines of a trace file, plain or compressed, and JSON in them."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from prefix_router.fleetsim.traces.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP = b"\x1f\x8b"

Row = TypeVar("Row")


class Line(NamedTuple):
    """A line with something in it, without white space around it. number: from 1, blank lines included."""

    file: str
    number: int
    text: str

    def error(self, what: str) -> TraceError:
        """An error that says where it is."""
        return TraceError(f"{self.file}: line {self.number}: {what}")


def read_lines(file: str) -> Iterator[Line]:
    """The lines that are not blank. Raises TraceError when the file cannot be read or is no text."""
    number = 0
    try:
        with Path(file).open("rb") as head:
            compressed = head.read(len(_GZIP)) == _GZIP
        with (gzip.open if compressed else open)(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if text := line.strip():
                    yield Line(file, number, text)
    except UnicodeDecodeError:
        raise TraceError(f"{file}: line {number + 1} or one soon after it is not text") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{file}: the compressed file is damaged after line {number}") from None
    except OSError as error:
        raise TraceError(f"{file} cannot be read: {error.strerror}") from None


def decode(line: Line, decoder: msgspec.json.Decoder[Row]) -> Row:
    """The JSON of a line as what the decoder expects. Raises TraceError."""
    try:
        return decoder.decode(line.text)
    except msgspec.DecodeError as error:
        raise line.error(str(error)) from None
