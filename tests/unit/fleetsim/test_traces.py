"""Trace files. The tests make their own; the real ones, which are not shipped, are read where they are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prefix_router.fleetsim.capacity import ideal_work
from prefix_router.fleetsim.request import SimulatedRequest, check
from prefix_router.fleetsim.traces import TraceError, read_arrivals, read_trace

MOONCAKE = [
    {"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 1500, "input_length": 1100, "output_length": 0, "hash_ids": [0, 1, 7]},
    {"timestamp": 1500, "input_length": 3, "output_length": 2, "hash_ids": [9]},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.6805900,20,1
2023-11-16 18:15:48.1805900,396,0
"""
REAL = Path(__file__).parents[4] / "shared" / "traces"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the public traces are not here")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def write_json(path: Path, rows: list[Any]) -> str:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def blocks_of_tokens(request: SimulatedRequest, start: int, end: int) -> tuple[int, ...]:
    return request.blocks[start // 16 : end // 16]


# Mooncake.


def test_a_mooncake_row_is_a_request_with_32_blocks_for_each_id(tmp_path: Path) -> None:
    requests = read_trace(write_json(tmp_path / "t.jsonl", MOONCAKE), 10)
    for request in requests:
        check(request)
    assert [request.arrival_seconds for request in requests] == [0, 1.5, 1.5]
    assert [request.prompt_tokens for request in requests] == [1024, 1100, 3]
    assert [len(request.blocks) for request in requests] == [64, 69, 1]
    assert len(set(requests[0].blocks)) == 64


def test_equal_mooncake_ids_are_equal_blocks_and_others_are_not(tmp_path: Path) -> None:
    first, second, third = read_trace(write_json(tmp_path / "t.jsonl", MOONCAKE), 10)
    assert second.blocks[:64] == first.blocks
    assert not set(second.blocks[64:]) & set(first.blocks)
    assert not set(third.blocks) & set(second.blocks)


def test_a_request_generates_at_least_one_token(tmp_path: Path) -> None:
    requests = read_trace(write_json(tmp_path / "t.jsonl", MOONCAKE), 10)
    assert [request.output_tokens for request in requests] == [5, 1, 2]


def test_no_more_requests_are_read_than_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", json.dumps(MOONCAKE[0]) + "\nnot read\n")
    assert len(read_trace(file, 1)) == 1


def test_blank_lines_and_compression_do_not_matter(tmp_path: Path) -> None:
    text = "\n" + "\n\n".join(json.dumps(row) for row in MOONCAKE)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_trace(str(packed), 10) == read_trace(write(tmp_path / "plain", text), 10)


def test_requests_are_in_order_of_arrival_even_where_the_file_is_not(tmp_path: Path) -> None:
    requests = read_trace(write_json(tmp_path / "t.jsonl", MOONCAKE[::-1]), 10)
    assert [request.arrival_seconds for request in requests] == [0, 1.5, 1.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": -1}, "line 2: Expected `float` >= 0.0 - at `$.timestamp`"),
        ({"timestamp": "noon"}, "line 2: Expected `float`, got `str` - at `$.timestamp`"),
        ({"input_length": 0}, "line 2: Expected `int` >= 1 - at `$.input_length`"),
        ({"hash_ids": None}, "line 2: Expected `array`, got `null` - at `$.hash_ids`"),
        ({"hash_ids": [-1, 2]}, "line 2: Expected `int` >= 0 - at `$.hash_ids[0]`"),
        ({"hash_ids": [1]}, "line 2: 1024 tokens need 2 hash_ids, got 1"),
    ],
)
def test_a_wrong_mooncake_row_is_named_by_its_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = write_json(tmp_path / "t.jsonl", [MOONCAKE[0], MOONCAKE[0] | change])
    with pytest.raises(TraceError) as error:
        read_trace(file, 10)
    assert str(error.value) == f"{file}: {message}"


# Azure.


def test_an_azure_trace_is_requests_that_share_nothing(tmp_path: Path) -> None:
    requests = read_trace(write(tmp_path / "t.csv", AZURE), 10)
    for request in requests:
        check(request)
    assert [request.arrival_seconds for request in requests] == [0, 1.5, 4]
    assert [request.prompt_tokens for request in requests] == [374, 396, 20]
    assert [request.output_tokens for request in requests] == [44, 1, 1]
    blocks = [block for request in requests for block in request.blocks]
    assert len(set(blocks)) == len(blocks)


def test_the_arrivals_of_an_azure_trace_can_be_had_alone(tmp_path: Path) -> None:
    assert read_arrivals(write(tmp_path / "t.csv", AZURE)) == [0, 1.5, 4]


@pytest.mark.parametrize("line", ["2023-11-16 18:15:46,1", "noon,1,2", "2023-11-16,x,2", "1,2,3,4"])
def test_a_wrong_azure_row_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    file = write(tmp_path / "t.csv", AZURE + line + "\n")
    with pytest.raises(TraceError, match="line 5: expected TIMESTAMP,ContextTokens,GeneratedTokens, got"):
        read_trace(file, 10)
    with pytest.raises(TraceError, match="line 5"):
        read_arrivals(file)


def test_arrivals_need_two_different_times(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "\n".join(AZURE.splitlines()[:2]))
    with pytest.raises(TraceError, match="has no two arrivals"):
        read_arrivals(file)


def test_arrivals_are_read_from_azure_traces_only(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 1: expected TIMESTAMP"):
        read_arrivals(write_json(tmp_path / "t.jsonl", MOONCAKE))


# Files that are no traces.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"hello\n", "line 1: expected a JSON object or TIMESTAMP"),
        (b"[1]\n", "line 1: expected a JSON object or TIMESTAMP"),
        (b'{"a": 1}\n', "line 1: expected hash_ids (Mooncake) or requests (coding agents)"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests"),
        (b"\xff\xfe\n", "line 1 or one soon after it is not text"),
        (b"\x1f\x8bnothing that was ever compressed", "the compressed file is damaged after line 0"),
        (
            gzip.compress(b'{"hash_ids": []}' * 99, mtime=0)[:-20],
            "the compressed file is damaged after line 0",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TraceError) as error:
        read_trace(str(path), 10)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none cannot be read: No such file or directory"):
        read_trace(str(tmp_path / "none"), 10)
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(str(tmp_path), 10)


# The real ones.


@real
@pytest.mark.parametrize(
    ("name", "requests", "hits"), [("conversation", 12_031, 0.374), ("synthetic", 3993, 0.651)]
)
def test_the_mooncake_traces_have_the_hit_rate_that_is_said_of_them(
    name: str, requests: int, hits: float
) -> None:
    trace = read_trace(str(REAL / "mooncake" / f"{name}_trace.jsonl"), 100_000)
    assert len(trace) == requests
    assert ideal_work(trace).hit_rate == pytest.approx(hits, abs=0.001)


@real
@pytest.mark.parametrize(("name", "requests"), [("code", 8819), ("conv", 19_366)])
def test_the_azure_traces_can_be_read(name: str, requests: int) -> None:
    assert len(read_arrivals(str(REAL / "azure" / f"AzureLLMInferenceTrace_{name}.csv"))) == requests


@real
def test_the_coding_agents_find_most_of_their_tokens_cached() -> None:
    trace = read_trace(str(REAL / "claude_code_weka" / "claude_code_traces.rle.jsonl.gz"), 500)
    for request in trace:
        check(request)
    assert len(trace) == 500
    assert 0.5 < ideal_work(trace).hit_rate < 0.99
