"""The chains of simulated prompts: they must say of two prompts what the router's own chains would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.keys import Conversations, name_blocks
from prefix_router.routing.chain import LEVEL_TOKENS, MOST_ENDS
from tests.support.simulated import simulated

if TYPE_CHECKING:
    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.routing.chain import PrefixChain


def chain(request: SimulatedRequest, conversations: Conversations | None = None) -> PrefixChain:
    return (conversations or Conversations()).chain(request, name_blocks(request))


def turn(blocks: int, prompt: int, session: str = "s", first_turn: int | None = None) -> SimulatedRequest:
    """A prompt of a conversation whose blocks hold 0, 1, 2, …, as they do in its later turns."""
    ids = range(blocks)
    return simulated(ids, prompt=prompt, session=session, user_turn=first_turn, output=7)


def test_there_is_a_level_for_each_length_that_fits() -> None:
    assert chain(simulated(range(40))).names == chain(simulated(range(50))).names[:10]
    for tokens in (63, 64, 640, 5000):
        request = simulated(range(-(-tokens // 16)), prompt=tokens)
        assert len(chain(request).names) == sum(level <= tokens for level in LEVEL_TOKENS)
        assert chain(request).tokens == tokens


def test_levels_are_equal_up_to_the_first_difference_and_never_behind_it() -> None:
    one = chain(simulated(range(40)))
    other = chain(simulated([*range(10), 99, *range(11, 40)]))  # Tokens 160 to 175 differ.
    assert one.names[:2] == other.names[:2]
    assert not set(one.names[2:]) & set(other.names[2:])


def test_models_share_no_level_and_all_names_are_of_64_bits() -> None:
    chains = [chain(simulated(range(40), model=model)) for model in (None, "a", "b")]
    assert len({name for some in chains for name in some.names}) == 30
    assert all(0 <= name < 2**64 for some in chains for name in some.names)


def test_the_end_of_a_prompt_without_a_conversation_is_what_it_holds() -> None:
    one, same, other = (chain(simulated([1, last], prompt=20)).ends[-1] for last in (2, 2, 3))
    assert one == same != other
    assert (one.tokens, one.answer_tokens) == (20, 0)


def test_a_later_turn_has_the_ends_of_the_earlier_ones_and_their_answers() -> None:
    conversations = Conversations()
    first = chain(turn(3, 40), conversations)
    second = chain(turn(6, 90), conversations)
    assert [(end.tokens, end.answer_tokens) for end in first.ends] == [(40, 0)]
    assert [(end.tokens, end.answer_tokens) for end in second.ends] == [(40, 7), (90, 0)]
    assert first.ends[0].name == second.ends[0].name


def test_conversations_that_begin_alike_have_ends_of_their_own() -> None:
    conversations = Conversations()
    ends = [chain(turn(3, 40, session), conversations).ends[0].name for session in ("a", "b")]
    assert len(set(ends)) == 2


def test_a_conversation_that_was_begun_anew_forgets_its_old_ends() -> None:
    conversations = Conversations()
    chain(turn(3, 40), conversations)
    other = simulated([7, 8, 9, 10], prompt=64, session="s")
    assert [end.tokens for end in chain(other, conversations).ends] == [64]


def test_the_first_turn_of_a_conversation_that_was_joined_later_is_an_end() -> None:
    assert [end.tokens for end in chain(turn(6, 90, first_turn=40)).ends] == [40, 90]
    assert [end.tokens for end in chain(turn(6, 90, first_turn=90)).ends] == [90]


def test_only_the_first_and_the_last_few_ends_of_a_long_conversation_are_kept() -> None:
    conversations = Conversations()
    prompts = [20 * number for number in range(1, 40)]
    chains = [chain(turn(-(-prompt // 16), prompt), conversations) for prompt in prompts]
    assert max(len(some.ends) for some in chains) == 2 * MOST_ENDS
    assert [end.tokens for end in chains[-1].ends] == prompts[:MOST_ENDS] + prompts[-MOST_ENDS:]


def test_prompts_shorter_than_a_block_have_ends_too() -> None:
    conversations = Conversations()
    chain(turn(1, 5), conversations)
    later = chain(turn(1, 10), conversations)
    assert [end.tokens for end in later.ends] == [5, 10]
    assert not later.names
