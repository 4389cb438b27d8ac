from __future__ import annotations

import pytest

from prefix_router.fleetsim.keys import name_blocks, prefix_key
from tests.support.simulated import simulated

N = 64
"""Four blocks."""


def test_equal_beginnings_have_equal_names_and_nothing_behind_a_difference_has() -> None:
    one, other = name_blocks(simulated([1, 2, 3, 4])), name_blocks(simulated([1, 2, 9, 4]))
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])


def test_models_share_no_names() -> None:
    names = [name_blocks(simulated([1, 2], model=model)) for model in (None, "a", "b")]
    assert len({name for some in names for name in some}) == 6


def test_only_full_blocks_have_names() -> None:
    assert len(name_blocks(simulated([1, 2, 3], prompt=47))) == 2
    assert len(name_blocks(simulated([1, 2, 3], prompt=48))) == 3


def test_an_answer_has_the_names_that_it_has_in_the_prompt_of_the_next_turn() -> None:
    first = simulated([1, 2, 3], prompt=40, output=30, output_blocks=[50, 51, 52])
    second = simulated([1, 2, 50, 51, 60], prompt=75)
    assert name_blocks(first)[:4] == name_blocks(second)


@pytest.mark.parametrize(("changed", "same"), [(0, False), (3, False), (4, True)])
def test_a_key_covers_the_blocks_of_the_first_n_tokens(changed: int, same: bool) -> None:
    blocks = [1, 2, 3, 4, 5, 6]
    other = [*blocks]
    other[changed] = 99
    assert (prefix_key(simulated(blocks), N) == prefix_key(simulated(other), N)) is same


def test_a_key_of_a_shorter_prompt_covers_all_of_it() -> None:
    assert prefix_key(simulated([1, 2], prompt=20), N) != prefix_key(simulated([1, 3], prompt=20), N)


def test_a_key_is_of_64_bits_and_depends_on_the_model() -> None:
    keys = {prefix_key(simulated([2**64 - 1], model=model), N) for model in (None, "a", "b")}
    assert len(keys) == 3
    assert all(0 <= key < 2**64 for key in keys)


@pytest.mark.parametrize("user_turn", [32, 40])
def test_a_key_ends_with_the_first_user_turn_and_stays_as_the_chat_grows(user_turn: int) -> None:
    first = simulated([1, 2, 3][: -(-user_turn // 16)], prompt=user_turn, session="s", user_turn=user_turn)
    second = simulated([1, 2, 50, 51], session="s", user_turn=user_turn)
    assert prefix_key(first, N) == prefix_key(second, N)
    assert prefix_key(first, N, anchored=False) != prefix_key(second, N, anchored=False)


def test_a_turn_that_ends_inside_a_block_is_told_apart_by_its_conversation() -> None:
    keys = {prefix_key(simulated([1, 2, 3], session=s, user_turn=40), N) for s in ("a", "b")}
    assert len(keys) == 2


def test_a_turn_that_ends_inside_a_block_of_no_conversation_is_what_the_block_holds() -> None:
    one, other = (simulated([1, block], prompt=20, user_turn=20) for block in (2, 3))
    assert prefix_key(one, N) != prefix_key(other, N)


def test_a_first_user_turn_beyond_n_changes_nothing() -> None:
    blocks = [1, 2, 3, 4, 5, 6]
    anchored = simulated(blocks, session="s", user_turn=90)
    assert prefix_key(anchored, N) == prefix_key(simulated(blocks), N)
