from __future__ import annotations

from random import Random

import pytest

from prefix_router.analyze.sharing import COLUMNS, LENGTHS, ROWS, Sharing
from prefix_router.fleetsim.capacity import ideal_work
from tests.support.simulated import simulated


def counted(*prompts: list[int], window_blocks: int = 10**6) -> Sharing:
    """Sharing of prompts whose blocks are all full."""
    sharing = Sharing(window_blocks)
    for blocks in prompts:
        sharing.add(blocks, len(blocks) * 16)
    sharing.finish()
    return sharing


def filled(sharing: Sharing) -> dict[tuple[str, str], tuple[int, int]]:
    """The cells with something in them, by the names of row and column."""
    return {
        (row, column): (cell.requests, cell.tokens)
        for (_, row), cells in zip(ROWS, sharing.cells, strict=True)
        for (_, column), cell in zip(COLUMNS, cells, strict=True)
        if cell.requests
    }


def prompt(start: int, blocks: int, tail: int) -> list[int]:
    """A beginning of so many blocks, and one block of its own."""
    return [*range(start, start + blocks), 10**6 + tail]


def test_prompts_that_share_nothing_are_in_one_cell() -> None:
    sharing = counted(*(prompt(1000 * number, 4, number) for number in range(3)))
    assert filled(sharing) == {("nothing", "1"): (3, 240)}
    assert sharing.recurring_share == 0


def test_a_request_is_where_its_longest_shared_beginning_is() -> None:
    sharing = counted(
        *(prompt(0, 100, number) for number in range(4)),  # 1,600 tokens, four times
        *(prompt(5000, 8, 10 + number) for number in range(2)),  # 128 tokens, twice
        prompt(9000, 8, 20),
    )
    assert filled(sharing) == {
        ("1k to 4k", "3–5"): (4, 4 * 101 * 16),
        ("under 256", "2"): (2, 2 * 9 * 16),
        ("nothing", "1"): (1, 9 * 16),
    }
    assert sharing.recurring_tokens == 3 * 1600 + 128
    assert (sharing.requests, sharing.tokens) == (7, (4 * 101 + 3 * 9) * 16)


def test_the_deeper_beginning_counts_where_two_are_nested() -> None:
    sharing = counted(*([*range(4), 100 + number // 2, 200 + number] for number in range(30)))
    assert filled(sharing) == {("under 256", "2"): (30, 30 * 96)}


@pytest.mark.parametrize(
    ("uses", "column"), [(2, "2"), (5, "3–5"), (6, "6–20"), (20, "6–20"), (21, "over 20")]
)
def test_the_column_is_how_many_have_the_beginning(uses: int, column: str) -> None:
    sharing = counted(*(prompt(0, 4, number) for number in range(uses)))
    assert list(filled(sharing)) == [("under 256", column)]


@pytest.mark.parametrize(
    ("blocks", "row"),
    [(15, "under 256"), (16, "256 to 1k"), (64, "1k to 4k"), (256, "4k to 16k"), (1024, "over 16k")],
)
def test_the_row_is_how_many_tokens_are_shared(blocks: int, row: str) -> None:
    sharing = counted(*(prompt(0, blocks, number) for number in range(2)))
    assert list(filled(sharing)) == [(row, "2")]


def test_a_partial_block_is_not_shared_and_the_last_token_is_always_computed() -> None:
    sharing = Sharing()
    sharing.add([1, 2, 3], 40)
    sharing.add([1, 2, 3], 40)
    sharing.finish()
    assert sharing.recurring_tokens == 32
    assert counted([1, 2], [1, 2]).recurring_tokens == 16


def test_recurring_tokens_are_what_an_ideal_cache_has() -> None:
    random = Random(1)
    prompts = []
    for number in range(200):
        length = random.randrange(1, 40)
        prompts.append(prompt(1000 * random.randrange(8), length, number))
    work = ideal_work([simulated(blocks, float(at)) for at, blocks in enumerate(prompts)])
    assert counted(*prompts).recurring_share == pytest.approx(work.hit_rate)


def test_beginnings_are_counted_by_length() -> None:
    sharing = counted(*(prompt(0, 8, number) for number in range(3)), prompt(500, 8, 9), [1])
    by_tokens = {length.tokens: length for length in sharing.lengths}
    assert list(by_tokens) == list(LENGTHS)
    length = by_tokens[64]
    assert (length.requests, length.distinct, length.recurring, length.largest) == (4, 2, 3, 3)
    assert by_tokens[256].requests == 0


def test_windows_bound_the_memory_and_hide_what_comes_back_later() -> None:
    prompts = [prompt(0, 9, number) for number in range(10)]
    sharing = counted(*prompts, window_blocks=22)  # two requests, each with its 10 blocks and one for itself
    assert sharing.windows == 5
    assert sharing.recurring_tokens == 5 * 144
    assert filled(sharing) == {("under 256", "2"): (10, 1600)}
    assert counted(*prompts).recurring_tokens == 9 * 144
    assert sharing.lengths[0].distinct == 5


def test_nothing_is_kept_of_a_window_that_is_over() -> None:
    sharing = Sharing(window_blocks=1000)
    for number in range(5000):
        sharing.add(prompt(1000 * number, 9, number), 160)
        assert len(sharing._counts) <= 1000
        assert len(sharing._kept) <= 100
    sharing.finish()
    assert sharing.requests == 5000


def test_of_nothing_nothing_recurs() -> None:
    sharing = counted()
    assert sharing.windows == 0
    assert sharing.recurring_share == 0
