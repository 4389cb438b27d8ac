"""Where a request belongs in its trace, as long as the request runs: ids, and the headers for backends.

Nothing is sent from here. The ids go to the record of the request; `observe.tracing` makes spans of them once
it has ended. There is one span for the request and one for each attempt, and a backend is given the attempt
as the parent of its own spans: where a request was tried twice, the trace shows which engine did what.

Only requests that come while tracing is on have ids. Without it nothing here is called, and trace headers of
clients go through like any other header.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefix_router.observe.events import AttemptRecord, TraceRecord
from prefix_router.openai_api.trace_context import (
    SAMPLED,
    TRACEPARENT,
    TRACESTATE,
    header_lines,
    read_traceparent,
    read_tracestate,
)

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from prefix_router.routing.decision import Decision

_SPAN_ID_BITS, _TRACE_ID_BITS = 64, 128
_SAMPLED_BITS = 56


@dataclass(frozen=True, slots=True)
class Tracing:
    """How requests are traced.

    sample_ratio: the part of the traces that begin here which is recorded, 0 to 1. A request that comes with
    a trace is recorded when its sender says that it is. random_bits: draws that many bits; ids need to
    differ, not to be secret. unix_ns: the time.
    """

    sample_ratio: float
    random_bits: Callable[[int], int] = field(default_factory=lambda: random.Random().getrandbits)
    unix_ns: Callable[[], int] = time.time_ns

    def begin(self, headers: CIMultiDictProxy[str]) -> TraceRecord:
        """Continue the trace of a request, or begin one."""
        now = self.unix_ns()
        values = headers.getall(TRACEPARENT, None)
        parent = None if values is None else read_traceparent(values)
        span_id = self._id(_SPAN_ID_BITS)
        if parent is None:
            number = self._id(_TRACE_ID_BITS)
            # The bits that level 2 of the standard wants to be random, whoever drew the id.
            sampled = number % (1 << _SAMPLED_BITS) < self.sample_ratio * (1 << _SAMPLED_BITS)
            flags = SAMPLED if sampled else 0
            return TraceRecord(f"{number:032x}", span_id, None, flags, "", sampled, now)
        state = read_tracestate(headers.getall(TRACESTATE, ()))
        return TraceRecord(parent.trace_id, span_id, parent.span_id, parent.flags, state, parent.sampled, now)

    def attempt(self, trace: TraceRecord, decision: Decision, began_seconds: float) -> AttemptRecord:
        """Begin an attempt of a traced request; its record is in that of the request, too."""
        backend = decision.member.backend
        attempt = AttemptRecord(
            self._id(_SPAN_ID_BITS), backend.name, backend.url, decision.reason, began_seconds
        )
        trace.attempts.append(attempt)
        return attempt

    def _id(self, bits: int) -> int:
        """A random number of so many bits, but not 0, which is no id."""
        return self.random_bits(bits) or 1


def lines_for_backend(trace: TraceRecord) -> bytes:
    """Return the header lines that make the running attempt the parent of the backend's spans."""
    return header_lines(trace.trace_id, trace.attempts[-1].span_id, trace.flags, trace.state)
