from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.engine.block_cache import BlockCache


def fill(cache: BlockCache, names: list[int]) -> list[int]:
    """Allocate a block for each name and publish it, as a request that computes them does."""
    blocks = cache.allocate(len(names))
    cache.publish(blocks, names)
    return blocks


def cached(cache: BlockCache, names: list[int]) -> list[bool]:
    return [bool(cache.lookup([name], 1)) for name in names]


def test_a_new_cache_is_all_free_and_finds_nothing() -> None:
    cache = BlockCache(4)
    assert (cache.total_blocks, cache.free_blocks, cache.named_blocks) == (4, 4, 0)
    assert cache.lookup([1, 2], 2) == []


def test_a_cache_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockCache(0)


def test_a_block_is_found_only_once_it_is_published() -> None:
    cache = BlockCache(4)
    blocks = cache.allocate(1)
    assert cache.lookup([1], 1) == []
    cache.publish(blocks, [1])
    assert cache.lookup([1], 1) == blocks


def test_a_lookup_ends_at_the_first_block_that_is_missing() -> None:
    cache = BlockCache(4)
    one, _two, _three = fill(cache, [1, 2, 3])
    assert cache.lookup([1, 99, 3], 3) == [one]


def test_a_lookup_stops_at_its_limit() -> None:
    cache = BlockCache(4)
    blocks = fill(cache, [1, 2, 3])
    assert cache.lookup([1, 2, 3], 2) == blocks[:2]


def test_released_blocks_are_free_and_still_found() -> None:
    cache = BlockCache(4)
    blocks = fill(cache, [1, 2])
    cache.release(blocks)
    assert cache.free_blocks == 4
    assert cache.lookup([1, 2], 2) == blocks


def test_acquiring_a_free_block_takes_it_from_the_free_ones() -> None:
    cache = BlockCache(4)
    cache.release(fill(cache, [1, 2]))
    hits = cache.lookup([1, 2], 2)
    assert cache.count_free(hits) == 2
    cache.acquire(hits)
    assert cache.count_free(hits) == 0
    assert cache.free_blocks == 2


def test_a_shared_block_is_free_only_when_the_last_one_gives_it_back() -> None:
    cache = BlockCache(2)
    blocks = fill(cache, [1])
    cache.acquire(blocks)
    cache.release(blocks)
    assert cache.free_blocks == 1
    cache.release(blocks)
    assert cache.free_blocks == 2


def test_blocks_without_reusable_content_are_taken_before_cached_ones() -> None:
    cache = BlockCache(4)
    cache.release(fill(cache, [1, 2]))
    unnamed = cache.allocate(2)
    assert cached(cache, [1, 2]) == [True, True]
    cache.release(unnamed)
    cache.allocate(2)
    assert cached(cache, [1, 2]) == [True, True]


def test_a_finished_requests_tail_is_evicted_before_its_head() -> None:
    cache = BlockCache(3)
    cache.release(fill(cache, [1, 2, 3]))
    cache.allocate(1)
    assert cached(cache, [1, 2, 3]) == [True, True, False]
    cache.allocate(1)
    assert cached(cache, [1, 2, 3]) == [True, False, False]


def test_the_least_recently_used_blocks_are_evicted_first() -> None:
    cache = BlockCache(3)
    for name in (1, 2, 3):
        cache.release(fill(cache, [name]))
    again = cache.lookup([1], 1)
    cache.acquire(again)
    cache.release(again)
    cache.allocate(1)
    assert cached(cache, [1, 2, 3]) == [True, False, True]


def test_eviction_waits_until_the_space_is_needed() -> None:
    cache = BlockCache(3)
    cache.release(fill(cache, [1]))
    cache.release(fill(cache, [2]))
    assert cache.named_blocks == 2
    cache.allocate(1)
    assert cache.named_blocks == 2


def test_a_block_in_use_cannot_be_taken() -> None:
    cache = BlockCache(3)
    fill(cache, [1, 2])
    with pytest.raises(ValueError, match="2 blocks wanted, 1 free"):
        cache.allocate(2)
    assert cached(cache, [1, 2]) == [True, True]


def test_equal_blocks_computed_side_by_side_are_both_kept_and_the_older_is_found() -> None:
    cache = BlockCache(3)
    older = fill(cache, [1])
    newer = fill(cache, [1])
    assert cache.named_blocks == 2
    assert cache.lookup([1], 1) == older
    cache.release(older)
    cache.release(newer)
    cache.allocate(2)
    assert cache.lookup([1], 1) == newer
    cache.allocate(1)
    assert cache.lookup([1], 1) == []


def test_of_several_equal_blocks_the_oldest_that_is_left_is_found() -> None:
    cache = BlockCache(3)
    oldest, middle, newest = (fill(cache, [1]) for _ in range(3))
    cache.release(oldest)
    cache.allocate(1)
    assert cache.lookup([1], 1) == middle
    cache.release(middle)
    cache.allocate(1)
    assert cache.lookup([1], 1) == newest


def test_evicting_the_newer_of_two_equal_blocks_leaves_the_older() -> None:
    cache = BlockCache(2)
    older = fill(cache, [1])
    newer = fill(cache, [1])
    cache.release(newer)
    cache.allocate(1)
    assert cache.lookup([1], 1) == older


def test_a_reset_forgets_everything_when_nothing_is_in_use() -> None:
    cache = BlockCache(3)
    cache.release(fill(cache, [1, 2]))
    assert cache.reset()
    assert (cache.free_blocks, cache.named_blocks) == (3, 0)
    assert cached(cache, [1, 2]) == [False, False]
    assert len(cache.allocate(3)) == 3


def test_a_reset_while_a_block_is_in_use_changes_nothing() -> None:
    cache = BlockCache(3)
    fill(cache, [1])
    assert not cache.reset()
    assert cached(cache, [1]) == [True]


@given(
    size=st.integers(1, 12),
    moves=st.lists(st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.booleans())),
)
def test_references_balance_and_no_block_has_two_owners(
    size: int, moves: list[tuple[list[int], bool]]
) -> None:
    """Requests that start, hit, compute the rest and end in turn, against a plain count of references."""
    cache = BlockCache(size)
    running: list[list[int]] = []
    for names, end_first in moves:
        if end_first and running:
            cache.release(running.pop(0))
        hits = cache.lookup(names, len(names))
        missing = len(names) - len(hits)
        if missing + cache.count_free(hits) <= cache.free_blocks:
            cache.acquire(hits)
            taken = cache.allocate(missing)
            owned = Counter(block for blocks in running for block in blocks)
            assert not set(taken) & (set(owned) | set(hits))
            cache.publish(taken, names[len(hits) :])
            running.append(hits + taken)
        in_use = {block for blocks in running for block in blocks}
        assert cache.free_blocks == size - len(in_use)
        assert cache.named_blocks <= size
    for blocks in running:
        cache.release(blocks)
    assert cache.free_blocks == size
    assert cache.reset()
