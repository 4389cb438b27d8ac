"""How much of a prompt came before."""

from __future__ import annotations

from prefix_router.routing.chain import LEVEL_TOKENS, PrefixChain, PromptEnd
from prefix_router.routing.seen import Seen


def chain(*names: int) -> PrefixChain:
    """A chain with these names for its levels."""
    return PrefixChain(names, LEVEL_TOKENS[len(names)], [PromptEnd(LEVEL_TOKENS[len(names)], 0)])


def test_the_first_of_its_kind_shares_nothing() -> None:
    assert Seen().shared_tokens(chain(1, 2, 3)) == 0


def test_what_came_before_is_shared_as_far_as_it_is_equal() -> None:
    seen = Seen()
    seen.shared_tokens(chain(1, 2, 3))
    assert seen.shared_tokens(chain(1, 2, 9, 10)) == LEVEL_TOKENS[1]
    assert seen.shared_tokens(chain(1, 2, 9, 10)) == LEVEL_TOKENS[3]
    assert seen.shared_tokens(chain(7)) == 0


def test_a_prompt_without_a_level_shares_nothing() -> None:
    seen = Seen()
    assert [seen.shared_tokens(chain()) for _ in range(2)] == [0, 0]


def test_what_is_used_is_kept_and_the_rest_is_bounded() -> None:
    seen = Seen(most_levels=100)
    for number in range(1000):
        seen.shared_tokens(chain(1, 2))
        seen.shared_tokens(chain(10_000 + number))
    assert len(seen) <= 101
    assert seen.shared_tokens(chain(1, 2)) == LEVEL_TOKENS[1]
    assert seen.shared_tokens(chain(10_000)) == 0
