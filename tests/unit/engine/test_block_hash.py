from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.engine.block_hash import hash_blocks, pack_token_ids

TOKEN_IDS = st.lists(st.integers(0, 2**32 - 1), max_size=60)


def test_only_full_blocks_have_a_hash() -> None:
    assert len(hash_blocks(pack_token_ids(range(15)), 16)) == 0
    assert len(hash_blocks(pack_token_ids(range(16)), 16)) == 1
    assert len(hash_blocks(pack_token_ids(range(47)), 16)) == 2


def test_a_block_is_named_after_everything_before_it_too() -> None:
    one = hash_blocks(pack_token_ids([1, 2, 3, 4, 5, 6]), 2)
    other = hash_blocks(pack_token_ids([9, 2, 3, 4, 5, 6]), 2)
    assert not set(one) & set(other)


def test_what_the_first_block_chains_to_changes_every_hash() -> None:
    tokens = pack_token_ids(range(64))
    assert not set(hash_blocks(tokens, 16, parent=1)) & set(hash_blocks(tokens, 16, parent=2))


@given(TOKEN_IDS, TOKEN_IDS, TOKEN_IDS, st.integers(1, 5))
def test_two_token_lists_share_exactly_the_blocks_of_their_common_beginning(
    head: list[int], one_end: list[int], other_end: list[int], block_size: int
) -> None:
    one, other = head + one_end, head + other_end
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    pairs = zip(
        hash_blocks(pack_token_ids(one), block_size),
        hash_blocks(pack_token_ids(other), block_size),
        strict=False,
    )
    assert sum(a == b for a, b in pairs) == common // block_size


def test_hashes_are_the_same_in_every_process_and_version() -> None:
    hashes = hash_blocks(pack_token_ids(range(4)), 2, parent=7)
    assert hashes == (0x28047E012E97CE2B, 0x251A41D0CC9EEAE9)


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_id_outside_32_bits_is_an_error(token_id: int) -> None:
    with pytest.raises(OverflowError):
        pack_token_ids([token_id])
