"""The edge cases of W3C Trace Context, by section of the standard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.openai_api.trace_context import (
    TraceParent,
    header_lines,
    read_traceparent,
    read_tracestate,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_a_valid_parent_is_read() -> None:
    assert read_traceparent([VALID]) == TraceParent(TRACE, int(SPAN, 16), 1)
    assert read_traceparent([VALID]).sampled  # type: ignore[union-attr]
    assert not read_traceparent([f"00-{TRACE}-{SPAN}-00"]).sampled  # type: ignore[union-attr]


def test_white_space_around_it_does_not_matter() -> None:
    assert read_traceparent([f" \t{VALID}\t "]) == read_traceparent([VALID])


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "x",
        f"ff-{TRACE}-{SPAN}-01",  # a version that will never be
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",  # lower case only
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE}-{SPAN}-0A",
        f"0A-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-",
        f"00-{TRACE}-{SPAN}-01-",  # version 00 is exactly 55 characters
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01.",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE}-{SPAN[:-1]}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-٠١",  # digits, but not of ASCII
        f"{VALID},{VALID}",
    ],
)
def test_an_invalid_parent_begins_a_new_trace(value: str) -> None:
    assert read_traceparent([value]) is None


def test_none_or_several_parents_begin_a_new_trace() -> None:
    assert read_traceparent([]) is None
    assert read_traceparent([VALID, VALID]) is None


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-brings", "-what the future brings."])
def test_of_a_later_version_the_known_beginning_is_read(more: str) -> None:
    assert read_traceparent([f"cc-{TRACE}-{SPAN}-01{more}"]) == TraceParent(TRACE, int(SPAN, 16), 1)


def test_a_later_version_must_keep_the_known_beginning() -> None:
    assert read_traceparent([f"cc-{TRACE}-{SPAN}-01.more"]) is None
    assert read_traceparent([f"cc-{TRACE}-{SPAN}-011"]) is None


def test_only_known_flags_go_on() -> None:
    assert read_traceparent([f"00-{TRACE}-{SPAN}-ff"]) == TraceParent(TRACE, int(SPAN, 16), 3)
    assert read_traceparent([f"00-{TRACE}-{SPAN}-fc"]) == TraceParent(TRACE, int(SPAN, 16), 0)


def test_a_state_is_passed_on_as_it_came() -> None:
    state = "rojo=00f067aa0ba902b7 ,\tcongo=t61rcWkgMzE,,a-b_c*d/e@f=!~ x"
    assert read_tracestate([state]) == state


def test_several_states_are_one_list() -> None:
    assert read_tracestate(["a=1", " b=2 ", "c=3,d=4"]) == "a=1,b=2,c=3,d=4"
    assert read_tracestate(["a=1", ""]) == "a=1,"


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        [" , ,"],
        ["a"],
        ["=1"],
        ["a="],
        ["a=1=2"],
        ["A=1"],
        ["a =1"],
        ["a=1\r\nb: 2"],
        ["a=é"],
        ["a=\udcff"],
        [f"{'a' * 257}=1"],
        [f"a={'1' * 257}"],
        [",".join(f"k{number}=1" for number in range(33))],
        ["a=1", "nonsense"],
    ],
)
def test_a_state_that_is_none_is_left_out(values: list[str]) -> None:
    assert read_tracestate(values) == ""


def test_the_largest_state_is_a_state() -> None:
    largest = ",".join(f"k{number}=1" for number in range(32))
    assert read_tracestate([largest]) == largest
    assert read_tracestate([f"{'a' * 256}={'1' * 256}"]) == f"{'a' * 256}={'1' * 256}"


def test_what_is_sent_on() -> None:
    assert header_lines(TRACE, 0xAB, 1, "") == f"traceparent: 00-{TRACE}-00000000000000ab-01\r\n".encode()
    assert header_lines(TRACE, int(SPAN, 16), 0, "a=1") == (
        f"traceparent: 00-{TRACE}-{SPAN}-00\r\ntracestate: a=1\r\n".encode()
    )


@given(st.lists(st.text(max_size=80), max_size=3))
def test_whatever_comes_is_read_or_refused(values: list[str]) -> None:
    """What is read can be written as one header line and is read again."""
    parent, state = read_traceparent(values), read_tracestate(values)
    if state:
        lines = header_lines(TRACE, 1, 0, state)
        assert lines.count(b"\r\n") == 2
        assert read_tracestate([state]) == state
    if parent is not None:
        assert read_traceparent([f"00-{parent.trace_id}-{parent.span_id:016x}-{parent.flags:02x}"]) == parent
