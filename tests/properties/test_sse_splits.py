"""However a stream is cut, whatever its line ends and its text are: one result, and no exception."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.openai_api.sse import SseObserver
from prefix_router.openai_api.usage import Usage

COUNTS = st.integers(0, 10**6)
TRICKY = st.sampled_from(
    [
        "",
        "a",
        "data: [DONE]",
        "\n\ndata: [DONE]\n\n",
        '"usage"',
        '"usage": {"prompt_tokens": 1}',
        '"error"',
        "\u2028",
    ]
)
TEXTS = st.one_of(TRICKY, st.text('ab"\\:{}\n\r\u2028é😀', max_size=8))
KINDS = st.sampled_from(["noise", "delta", "usage", "done"])
NOISE = st.sampled_from(
    [": keep-alive\n\n", "event: ping\ndata: {}\n\n", "\n", "id: 7\n\n", "data: {broken\n\n"]
)


def _event(value: object, spread: bool) -> str:
    """One event, its JSON on one line or, legally, spread over many."""
    lines = json.dumps(value, indent=1 if spread else None, ensure_ascii=False).split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, tuple[bool, bool, Usage | None]]:
    """A chat stream and what must be seen in it: (first content, terminal, usage)."""
    content, terminal, usage = False, False, None
    text = ""
    for kind in draw(st.lists(KINDS, max_size=8)):
        spread = draw(st.booleans())
        if kind == "noise":
            text += draw(NOISE)
        elif kind == "delta":
            delta = draw(TEXTS)
            content |= delta != ""
            text += _event({"choices": [{"delta": {"role": "assistant", "content": delta}}]}, spread)
        elif kind == "usage":
            prompt, completion = draw(COUNTS), draw(COUNTS)
            usage = Usage(prompt, None, completion)
            counts = {"prompt_tokens": prompt, "completion_tokens": completion}
            text += _event({"choices": [], "usage": counts}, spread)
        else:
            terminal = True
            text += "data: [DONE]\n\n"
    line_end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return text.replace("\n", line_end).encode(), (content, terminal, usage)


def _cut(stream: bytes, offsets: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(offset, len(stream)) for offset in offsets), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def _seen(chunks: list[bytes], limit_bytes: int) -> tuple[object, ...]:
    observer = SseObserver(limit_bytes)
    for chunk in chunks:
        observer.feed(chunk)
    observer.finish()
    return (
        observer.first_content,
        observer.terminal,
        observer.usage,
        observer.error,
        observer.response_id,
    )


@settings(deadline=None)
@given(streams(), st.lists(st.integers(0, 2000), max_size=20))
def test_any_split_of_a_stream_shows_exactly_what_was_put_into_it(
    stream: tuple[bytes, tuple[bool, bool, Usage | None]], offsets: list[int]
) -> None:
    content, expected = stream
    assert _seen(_cut(content, offsets), 2**20)[:3] == expected


PIECES = st.sampled_from(
    [
        b"data: ", b"data:", b"event: ", b": ", b"\n", b"\r", b"\r\n", b"\n\n", b"{", b"}", b"\xff",
        b"x" * 50, b"error", b"message_stop", b"response.failed", b"[DONE]", b'"usage"',
        b'{"choices":[{"text":"x"}]}', b'{"usage":{"prompt_tokens":3}}', b'{"error":1}',
        b'{"type":"response.completed","response":{"id":"resp_1","object":"response"}}',
    ]
)  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(PIECES, max_size=30).map(b"".join),
    st.lists(st.integers(0, 600), max_size=12),
    st.integers(20, 200),
)
def test_garbage_never_raises_and_is_seen_alike_however_it_is_split_and_limited(
    stream: bytes, offsets: list[int], limit_bytes: int
) -> None:
    whole = _seen([stream], limit_bytes)
    assert _seen(_cut(stream, offsets), limit_bytes) == whole
    assert _seen([stream[i : i + 1] for i in range(len(stream))], limit_bytes) == whole


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(stream: bytes) -> None:
    _seen([stream, stream], 64)
