from __future__ import annotations

import msgspec
import pytest

from prefix_router.analyze.captures import is_head, read_captured, read_head
from prefix_router.analyze.record import RecordedRequest, UnusableLineError
from prefix_router.observe.capture_line import KEY_BYTES, CapturedRequest, CaptureHead, Names
from prefix_router.observe.events import RequestRecord
from prefix_router.openai_api.request import parse
from prefix_router.routing.chain import prefix_chain

NAMES = Names(b"k" * KEY_BYTES)


def line_of(*texts: str, api: str = "chat") -> CapturedRequest:
    """What is captured of a chat whose turns these are, a user's first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    chain = prefix_chain(parse("/v1/chat/completions", None, msgspec.json.encode({"messages": messages}), {}))
    assert chain is not None
    record = RequestRecord("r", "POST", "/", api=api, prompt_tokens=90, cached_tokens=80, completion_tokens=7)
    return NAMES.line_of(record, chain, 12.0)


def read(line: CapturedRequest, number: int = 1) -> RecordedRequest:
    return read_captured(msgspec.json.encode(line), number)


def shared(one: RecordedRequest, other: RecordedRequest) -> int:
    """Tokens in blocks that two requests have in common, from the first on."""
    common = 0
    for ours, theirs in zip(one.names, other.names, strict=False):
        if ours != theirs:
            break
        common += 1
    return common * 16


def test_a_line_becomes_a_request_with_a_name_for_each_block() -> None:
    request = read(line_of("x" * 1000))
    assert len(request.names) == -(-request.tokens // 16)
    assert len(set(request.names)) == len(request.names)
    assert (request.seconds, request.output_tokens) == (12.0, 7)
    assert (request.counted_tokens, request.cached_tokens) == (90, 80)


def test_what_two_prompts_share_is_seen_up_to_a_level() -> None:
    start = "a document " * 100
    one, other = read(line_of(start + "what?"), 1), read(line_of(start + "when?"), 2)
    assert len(start) // 4 - 64 <= shared(one, other) <= len(start) // 4 + 16


def test_equal_prompts_share_everything_even_short_ones() -> None:
    one, other = (
        read(line_of("hello there, how are you today?"), 1),
        read(line_of("hello there, how are you today?"), 2),
    )
    assert one.names == other.names


def test_a_later_turn_shares_all_of_the_prompt_before_it() -> None:
    first = read(line_of("q" * 500), 1)
    second = read(line_of("q" * 500, "a" * 300, "and?" * 20), 2)
    assert shared(first, second) == first.tokens // 16 * 16
    assert first.first_end == second.first_end


def test_a_long_chat_shares_its_middle_with_what_follows() -> None:
    texts = [f"turn {number} " * 30 for number in range(25)]
    earlier, later = read(line_of(*texts[:15]), 1), read(line_of(*texts), 2)
    assert shared(earlier, later) >= earlier.tokens - 64


def test_what_lies_behind_the_last_level_is_nobody_elses() -> None:
    line = msgspec.structs.replace(line_of("x" * 900), ends=())
    assert shared(read(line, 1), read(line, 2)) == 192
    assert read(line, 1).names[-1] != read(line, 2).names[-1]


def damaged() -> list[bytes]:
    line = line_of("x" * 1000)
    replace = msgspec.structs.replace
    return [
        b"hello",
        b'{"messages": []}',
        msgspec.json.encode(replace(line, levels="AAAA")),
        msgspec.json.encode(replace(line, tokens=1)),
        msgspec.json.encode(replace(line, levels="", ends=((10**6, line.ends[0][1]),))),
        msgspec.json.encode(replace(line, ends=((1, ""),))),
        msgspec.json.encode(replace(line, levels="AAAAAAAAAAAA" * 2000)),
    ]


@pytest.mark.parametrize("line", damaged())
def test_a_damaged_line_is_refused(line: bytes) -> None:
    with pytest.raises(UnusableLineError, match="not a line of a capture"):
        read_captured(line, 1)


def test_what_generates_nothing_is_left_out() -> None:
    with pytest.raises(UnusableLineError, match="nothing is generated"):
        read(line_of("hello", api="embeddings"))


def test_a_capture_is_told_by_its_head() -> None:
    head = msgspec.json.encode(CaptureHead(sample=0.5))
    assert is_head(head)
    assert read_head(head).sample == 0.5
    assert not is_head(msgspec.json.encode(line_of("hello")))


@pytest.mark.parametrize("head", [b'{"capture":2}', b'{"capture":', b'{"capture":1,"sample":0}'])
def test_a_head_of_another_format_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (several texts, one kind)
        read_head(head)
