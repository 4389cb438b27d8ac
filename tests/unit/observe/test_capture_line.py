from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from prefix_router.observe.capture_line import (
    KEY_BYTES,
    CapturedRequest,
    CaptureHead,
    Names,
    names_of,
)
from prefix_router.observe.events import RequestRecord
from prefix_router.routing.chain import PrefixChain, PromptEnd

CHAIN = PrefixChain([2**64 - 1, 7, 8], 200, [PromptEnd(70, 7)])
NAMES = Names(b"k" * KEY_BYTES)


@pytest.fixture
def line(request_finished: RequestRecord) -> CapturedRequest:
    return NAMES.line_of(request_finished, CHAIN, 1000.12345)


def test_a_line_says_what_became_of_the_request(line: CapturedRequest) -> None:
    assert line.time == 1000.123
    assert (line.api, line.tokens, line.status, line.backend, line.reason) == (
        "chat",
        200,
        200,
        "a",
        "affinity",
    )
    assert (line.prompt_tokens, line.cached_tokens, line.completion_tokens) == (100, 96, 7)
    assert (line.first_token_seconds, line.duration_seconds) == (0.4, 4.0)


def test_equal_hashes_have_equal_names_within_a_file(request_finished: RequestRecord) -> None:
    one = names_of(NAMES.line_of(request_finished, CHAIN, 0).levels)
    other = names_of(NAMES.line_of(request_finished, CHAIN._replace(names=[2**64 - 1, 9]), 0).levels)
    assert len(one) == 3
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_nothing_in_a_line_can_be_compared_with_another_file(
    request_finished: RequestRecord, line: CapturedRequest
) -> None:
    other = Names(b"l" * KEY_BYTES).line_of(request_finished, CHAIN, 1000.12345)
    assert not set(names_of(line.levels)) & set(names_of(other.levels))
    assert not set(names_of(line.levels)) & set(CHAIN.names)
    assert line.ends[0][0] == other.ends[0][0] == 70
    assert line.ends[0][1] != other.ends[0][1]
    assert line.model is not None
    assert line.model != other.model
    assert "tiny" not in msgspec.json.encode(line).decode()


def test_a_line_is_read_as_it_was_written(line: CapturedRequest) -> None:
    assert msgspec.json.decode(msgspec.json.encode(line), type=CapturedRequest) == line
    assert names_of(line.ends[0][1]) == (names_of(line.levels)[1],)


def test_what_is_not_known_is_left_out(request_finished: RequestRecord) -> None:
    record = replace(
        request_finished, model=None, reason=None, first_token_seconds=None, completion_tokens=None
    )
    written = msgspec.json.decode(msgspec.json.encode(NAMES.line_of(record, CHAIN, 1.0)))
    assert not {"model", "reason", "first_token_seconds", "completion_tokens"} & written.keys()


@pytest.mark.parametrize("text", ["AAAA", "not base64!", "é"])
def test_a_text_that_holds_no_whole_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (several texts, one kind)
        names_of(text)


def test_a_head_knows_its_format_and_sample() -> None:
    assert msgspec.json.decode(msgspec.json.encode(CaptureHead(sample=0.5))) == {"capture": 1, "sample": 0.5}
