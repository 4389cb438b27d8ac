from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.validation.sequence import (
    FIRST_TOKEN_ID,
    LAST_TOKEN_ID,
    Ask,
    Group,
    Kind,
    SequenceSpec,
    mixed_sequence,
)

SPEC = SequenceSpec(
    block_size=32, cache_tokens=4096, step_token_budget=1024, single=150, groups=2, seed="test"
)

Asked = tuple[tuple[int, ...], tuple[int, ...]]


def prompts(groups: list[Group]) -> list[tuple[Ask, tuple[int, ...]]]:
    """Every request and its prompt, if each answer were token 1 as often as wanted."""
    asked: list[Asked] = []
    found = []
    for group in groups:
        made = [(ask, ask.prompt(asked)) for ask in group]
        asked += [(prompt, (1,) * ask.output_tokens) for ask, prompt in made]
        found += made
    return found


def test_equal_seeds_give_equal_sequences_and_others_do_not() -> None:
    assert mixed_sequence(SPEC) == mixed_sequence(SPEC)
    assert mixed_sequence(SPEC) != mixed_sequence(replace(SPEC, seed="other"))


def test_there_are_as_many_requests_and_groups_as_asked_for() -> None:
    sizes = Counter(len(group) for group in mixed_sequence(SPEC))
    # A group of each of the three concurrent kinds: a request to wait for, and three, three or five others.
    assert sizes == {1: 150, 4: 4, 6: 2}
    assert {len(group) for group in mixed_sequence(replace(SPEC, groups=0))} == {1}


def test_every_kind_occurs() -> None:
    assert {ask.kind for group in mixed_sequence(SPEC) for ask in group} == set(Kind)


def test_every_request_fits_an_engine_whose_longest_prompt_is_two_steps() -> None:
    for ask, prompt in prompts(mixed_sequence(SPEC)):
        assert 1 <= len(prompt) + ask.output_tokens <= 2 * SPEC.step_token_budget
        assert all(FIRST_TOKEN_ID <= token <= LAST_TOKEN_ID for token in ask.tokens)


def test_the_prompts_are_many_times_the_cache() -> None:
    assert sum(len(prompt) for _, prompt in prompts(mixed_sequence(SPEC))) > 10 * SPEC.cache_tokens


def test_the_first_of_a_group_takes_one_step_alone() -> None:
    for group in mixed_sequence(SPEC):
        if len(group) > 1:
            assert group[0].kind is Kind.NEW
            assert SPEC.step_token_budget // 2 < len(group[0].tokens) <= SPEC.step_token_budget


def test_a_group_under_pressure_needs_more_than_the_cache_holds() -> None:
    groups = [group[1:] for group in mixed_sequence(SPEC) if group[-1].kind is Kind.PRESSURE]
    for group in groups:
        assert sum(len(ask.tokens) for ask in group) < SPEC.cache_tokens
        assert sum(len(ask.tokens) + ask.output_tokens for ask in group) > SPEC.cache_tokens


def test_the_kinds_are_what_they_are_called() -> None:
    known: list[tuple[int, ...]] = []
    for ask, prompt in prompts(mixed_sequence(SPEC)):
        match ask.kind:
            case Kind.NEW:
                assert prompt[: SPEC.block_size] not in {one[: SPEC.block_size] for one in known}
            case Kind.REPEAT:
                assert prompt in known
            case Kind.EXTENSION:
                assert any(len(one) < len(prompt) and prompt[: len(one)] == one for one in known)
            case Kind.FOLLOW_UP:
                assert ask.continues is not None
            case Kind.SHIFTED:
                assert any(one[1:] == prompt for one in known)
            case Kind.MIDDLE:
                assert any(
                    len(one) == len(prompt) and sum(a != b for a, b in zip(one, prompt, strict=True)) <= 1
                    for one in known
                )
            case _:
                pass
        known.append(prompt)


def test_a_prompt_may_continue_an_answer() -> None:
    asked: list[Asked] = [((1, 2), (3,)), ((4,), (5, 6))]
    assert Ask(Kind.FOLLOW_UP, (7,), 1, continues=1).prompt(asked) == (4, 5, 6, 7)
    assert Ask(Kind.NEW, (7,), 1).prompt(asked) == (7,)


@pytest.mark.parametrize("block_size", [16, 128])
def test_half_of_the_lengths_are_around_a_multiple_of_a_block(block_size: int) -> None:
    spec = replace(SPEC, block_size=block_size, cache_tokens=16_384, single=600)
    new = [group[0] for group in mixed_sequence(spec) if len(group) == 1 and group[0].kind is Kind.NEW]
    near = sum((len(ask.tokens) + 1) % block_size <= 2 for ask in new)
    assert near >= len(new) * 0.4
