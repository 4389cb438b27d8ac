"""The yardstick of the suite, checked without vLLM."""

from __future__ import annotations

import pytest

from benchmarks.support.vllm.workload import SharedPrefixWorkload, ideal_hit_tokens, percentile


def test_the_first_prompt_of_a_prefix_is_cold() -> None:
    assert ideal_hit_tokens([range(100)], block_size_tokens=10) == 0


def test_another_ending_hits_the_whole_blocks_of_the_shared_prefix() -> None:
    shared = list(range(35))
    assert ideal_hit_tokens([[*shared, 1, 1, 1], [*shared, 2, 2, 2]], block_size_tokens=10) == 30


def test_equal_blocks_after_different_beginnings_do_not_hit() -> None:
    tail = list(range(20))
    assert ideal_hit_tokens([[*([1] * 10), *tail], [*([2] * 10), *tail]], block_size_tokens=10) == 0


def test_the_last_token_of_a_repeated_prompt_is_computed_again() -> None:
    assert ideal_hit_tokens([range(20), range(20)], block_size_tokens=10) == 10
    assert ideal_hit_tokens([range(21), range(21)], block_size_tokens=10) == 20


def test_every_round_asks_every_prefix_once_with_endings_of_its_own() -> None:
    rounds = SharedPrefixWorkload("a", prefixes=5, rounds=3, prefix_words=20).conversations()
    prefixes = [sorted(system["content"] for system, _ in conversations) for conversations in rounds]
    endings = [user["content"] for conversations in rounds for _, user in conversations]
    assert len(set(prefixes[0])) == 5
    assert prefixes == [prefixes[0]] * 3
    assert len(set(endings)) == 15


def test_a_workload_is_known_by_its_seed() -> None:
    def conversations(seed: str) -> list[list[list[dict[str, str]]]]:
        return SharedPrefixWorkload(seed, prefixes=2, rounds=2, prefix_words=5).conversations()

    assert conversations("a") == conversations("a")
    assert conversations("a") != conversations("b")


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (51, 3), (90, 4), (99, 4), (0, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    assert percentile([4, 2, 1, 3], percent) == expected
