from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.kv_events.events import AllBlocksCleared, BlockRemoved, BlockStored, decode, pack
from tests.support.kv_publisher import cleared, removed, stored


def batch(*events: Any, rank: Any = 0) -> bytes:
    return msgspec.msgpack.encode([12.5, list(events), rank])


def test_a_batch_of_a_current_version() -> None:
    decoded = decode(batch(stored([1, b"\x02"], [5, 6, 7, 8], block_size=2), removed(1), cleared(), rank=3))
    assert decoded is not None
    assert (decoded.time, decoded.rank, decoded.unknown, decoded.malformed) == (12.5, 3, 0, 0)
    assert decoded.events == [
        BlockStored([1, b"\x02"], None, pack([5, 6, 7, 8]), 2, medium="GPU"),
        BlockRemoved([1], "GPU"),
        AllBlocksCleared(),
    ]


def test_a_batch_of_an_older_version_writes_events_as_arrays() -> None:
    decoded = decode(
        batch(
            ["BlockStored", [1], 7, [5, 6], 2, 4, "CPU", "sql"],
            ["BlockStored", [2], None, [5, 6], 2, None],
            ["BlockRemoved", [1], "GPU"],
            ["BlockRemoved", [2]],
            ["AllBlocksCleared"],
        )
    )
    assert decoded is not None
    assert decoded.events == [
        BlockStored([1], 7, pack([5, 6]), 2, "sql", "CPU"),
        BlockStored([2], None, pack([5, 6]), 2),
        BlockRemoved([1], "GPU"),
        BlockRemoved([2]),
        AllBlocksCleared(),
    ]


def test_a_batch_without_a_rank_is_of_the_first() -> None:
    for written in ([1.0, []], [1.0, [], None]):
        decoded = decode(msgspec.msgpack.encode(written))
        assert decoded is not None
        assert decoded.rank == 0


def test_new_fields_are_passed_over_and_extra_keys_are_there_for_each_block() -> None:
    event = stored([1, 2], range(8), extra_keys=[["salt"], None], group_idx=2, tomorrow={"a": 1})
    decoded = decode(batch(event))
    assert decoded is not None
    (kept,) = decoded.events
    assert isinstance(kept, BlockStored)
    assert (kept.extra_keys, kept.group) == ([["salt"], ()], 2)


def test_unknown_events_are_counted_and_the_others_kept() -> None:
    decoded = decode(batch({"type": "BlockMoved", "block_hashes": [1]}, ["Tomorrow"], removed(1)))
    assert decoded is not None
    assert (decoded.unknown, decoded.malformed, len(decoded.events)) == (2, 0, 1)


@pytest.mark.parametrize(
    "event",
    [
        17,
        [],
        {},
        {"type": 5},
        {"type": "BlockRemoved"},
        {"type": "BlockRemoved", "block_hashes": ["text"]},
        {"type": "BlockRemoved", "block_hashes": [True]},
        {"type": "BlockRemoved", "block_hashes": [1], "group_idx": -1},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": 4},
        stored([1], [1, 2, -3, 4]),
        stored([1], [1, 2, 2**32, 4]),
        {**stored([1], [1]), "token_ids": ["x"]},
        {**stored([1], [1]), "token_ids": None},
        {**stored([1], [1]), "block_size": "16"},
        {**stored([1], [1]), "parent_block_hash": 1.5},
        stored([1], [1], extra_keys=[None, None]),
        stored([1], [1], extra_keys=["salt"]),
        stored([1], [1], extra_keys=7),
    ],
)
def test_malformed_events_are_counted(event: Any) -> None:
    decoded = decode(batch(event, removed(1)))
    assert decoded is not None
    assert (decoded.malformed, decoded.events) == (1, [BlockRemoved([1], "GPU")])


@pytest.mark.parametrize(
    "written", [None, 5, [], [1.0], ["now", []], [1.0, {}], [1.0, [], "first"], [1.0, [], -1]]
)
def test_what_is_no_batch_is_none(written: Any) -> None:
    assert decode(msgspec.msgpack.encode(written)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_not(payload: bytes) -> None:
    decode(payload)


def test_nesting_without_end_is_no_batch() -> None:
    assert decode(b"\x91" * 100_000) is None
