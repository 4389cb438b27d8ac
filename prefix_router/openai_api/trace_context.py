"""The headers of W3C Trace Context: reading those that came, writing those that go on.

Source: W3C Trace Context (www.w3.org/TR/trace-context), sections 2 to 4. Where a client may send two things,
this is what they mean:

- one `traceparent` that is valid: its trace goes on. Of a version that is not known yet, the beginning that
  version 00 defines is read; what is sent on is version 00.
- none, an invalid one, or several: a new trace begins, and `tracestate` is not even looked at.
- several `tracestate` headers are one list. It is passed on as it came; one that breaks the grammar or has
  more than 32 members is left out, and does no harm to the trace.

Of the flags, `sampled` goes on, and so does `random-trace-id` (level 2 of the standard); others must be zero.

Pure, O(length of the headers), no allocation for a request without them. Never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
HEADERS = frozenset({b"traceparent", b"tracestate"})

SAMPLED = 0x01
RANDOM_TRACE_ID = 0x02
_PASSED_ON = SAMPLED | RANDOM_TRACE_ID

MAX_MEMBERS = 32
"""Of a `tracestate`, empty ones not counted."""

_OWS = " \t"

# The first 55 characters, then the end, or a dash in a version that may have more.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_UNKNOWABLE_VERSION = "ff"
_VERSION = "00"

_KEY = r"[a-z0-9][a-z0-9_*/@-]{0,255}"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"{_KEY}={_VALUE}")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """Where a request belongs: the trace, and the span of whoever sent it.

    trace_id: 32 lower-case hexadecimal digits. span_id: 64 bits, never 0. flags: those that go on.
    """

    trace_id: str
    span_id: int
    flags: int

    @property
    def sampled(self) -> bool:
        """Whether the sender may have recorded its span."""
        return bool(self.flags & SAMPLED)


def read_traceparent(values: Sequence[str]) -> TraceParent | None:
    """Return what the `traceparent` headers of a request say; None when a new trace has to begin."""
    if len(values) != 1:
        return None
    found = _TRACEPARENT.fullmatch(values[0].strip(_OWS))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _UNKNOWABLE_VERSION or (version == _VERSION and more is not None):
        return None
    number = int(span_id, 16)
    if not number or not int(trace_id, 16):
        return None
    return TraceParent(trace_id, number, int(flags, 16) & _PASSED_ON)


def read_tracestate(values: Sequence[str]) -> str:
    """Return the `tracestate` headers of a request as one value; "" for none, or none that is valid.

    A single value comes back as it is, but for white space around it.
    """
    combined = ",".join([value.strip(_OWS) for value in values])
    members = [member for part in combined.split(",") if (member := part.strip(_OWS))]
    if not 0 < len(members) <= MAX_MEMBERS:
        return ""
    return combined if all(map(_MEMBER.fullmatch, members)) else ""


def header_lines(trace_id: str, span_id: int, flags: int, state: str) -> bytes:
    """Return the header lines that continue a trace, each with its line end.

    span_id: of the span that the receiver's spans belong to. state: from `read_tracestate`.
    """
    lines = f"traceparent: {_VERSION}-{trace_id}-{span_id:016x}-{flags:02x}\r\n"
    if state:
        lines += f"tracestate: {state}\r\n"
    return lines.encode("ascii")
