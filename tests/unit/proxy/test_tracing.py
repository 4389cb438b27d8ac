"""Where requests belong in their traces: ids and samples, with the random numbers given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from prefix_router.proxy.tracing import Tracing

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def tracing(*numbers: int, sample_ratio: float = 1.0) -> Tracing:
    """Draws the numbers, span id first."""
    order = iter(numbers)
    draw: Callable[[int], int] = lambda _: next(order)  # noqa: E731
    return Tracing(sample_ratio, draw, lambda: 1234)


def test_a_trace_begins_with_ids_of_our_own() -> None:
    trace = tracing(5, 6).begin(headers(("tracestate", "a=1")))
    assert (trace.span_id, trace.trace_id, trace.parent_id) == (5, f"{6:032x}", None)
    assert (trace.state, trace.flags, trace.sampled, trace.began_unix_ns) == ("", 1, True, 1234)


def test_a_trace_goes_on_whatever_our_own_ratio_is() -> None:
    sent = headers(("Traceparent", f"00-{TRACE}-{SPAN}-03"), ("Tracestate", "a=1"), ("tracestate", "b=2"))
    trace = tracing(5, sample_ratio=0.0).begin(sent)
    assert (trace.span_id, trace.trace_id, trace.parent_id) == (5, TRACE, int(SPAN, 16))
    assert (trace.state, trace.flags, trace.sampled) == ("a=1,b=2", 3, True)
    trace = tracing(5).begin(headers(("traceparent", f"00-{TRACE}-{SPAN}-00")))
    assert (trace.flags, trace.sampled) == (0, False)


def test_zero_is_no_id() -> None:
    trace = tracing(0, 0).begin(headers())
    assert (trace.span_id, trace.trace_id) == (1, f"{1:032x}")


@pytest.mark.parametrize(
    ("ratio", "number", "sampled"),
    [
        (0.0, 0, False),
        (0.0, 1, False),
        (1.0, (1 << 128) - 1, True),
        (0.25, (1 << 54) - 1, True),
        (0.25, 1 << 54, False),
        (0.25, 1 << 127, True),  # only the low 56 bits count
    ],
)
def test_a_ratio_is_taken_of_the_trace_ids(ratio: float, number: int, sampled: bool) -> None:
    trace = tracing(5, number, sample_ratio=ratio).begin(headers())
    assert (trace.sampled, trace.flags) == (sampled, int(sampled))


def test_ids_drawn_by_itself_differ() -> None:
    traces = [Tracing(1.0).begin(headers()) for _ in range(100)]
    assert len({trace.trace_id for trace in traces}) == len({trace.span_id for trace in traces}) == 100
