from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from prefix_router.routing.chain import MOST_ENDS, PrefixChain, PromptEnd
from prefix_router.routing.depth import LEAST_COUNT, LEAST_WINDOW, POPULAR_SHARE, Depth, DepthKey, candidates
from tests.support.chains import chain_of, conversation, of_ids, prose

BACKENDS = 8
NEW = 1_000_000
"""Names from here on are of beginnings that one request has, or one chat."""


def named(*names: int) -> PrefixChain:
    """A chain of levels with these names, and an end right after the last one."""
    tokens = 64 * len(names) + 1
    return PrefixChain(names, tokens, (PromptEnd(tokens, -names[-1]),))


def asked(depth: Depth, *names: int, times: int = 1, backends: int = BACKENDS) -> DepthKey:
    """The last of the keys of so many requests that begin alike and then go on each in its own way."""
    for _ in range(times):
        key = depth.key(named(*names, next(_NEW)), backends)
    return key


def numbers() -> Iterator[int]:
    number = NEW
    while True:
        yield number
        number += 1


_NEW = numbers()


# Candidates.


def test_candidates_are_levels_and_ends_shortest_first() -> None:
    chain = chain_of(conversation(prose(300, 1), prose(400, 2), prose(500, 3)))
    found = list(candidates(chain))
    tokens = [length for _, length in found]
    assert tokens == sorted(tokens)
    assert found[0] == (chain.names[0], 64)
    assert found[-1] == (chain.ends[-1].name, chain.tokens)
    assert {(end.name, end.tokens) for end in chain.ends} <= set(found)
    assert {64, 128, 256, 512, 1024} <= set(tokens)


def test_a_prompt_that_is_shorter_than_a_level_has_its_end() -> None:
    chain = chain_of(conversation("Hi"))
    assert list(candidates(chain)) == [(chain.ends[0].name, chain.tokens)]


def test_there_are_few_candidates_and_none_beyond_the_longest_key() -> None:
    chain = of_ids((1, 200_000))
    *levels, end = candidates(chain)
    assert max(tokens for _, tokens in levels) == 65_536
    assert end == (chain.ends[-1].name, chain.tokens)
    assert len(levels) <= 60


def test_only_the_first_ends_are_candidates() -> None:
    texts = [prose(10, at) for at in range(31)]
    chain = chain_of(conversation(*texts))
    of_ends = {name for name, _ in candidates(chain)} - set(chain.names)
    assert of_ends == {end.name for end in chain.ends[:MOST_ENDS]}


# Which of them is the key.


def test_the_key_of_an_unpopular_prompt_is_its_shortest_candidate() -> None:
    chain = of_ids((1, 1000))
    assert Depth().key(chain, BACKENDS) == DepthKey(chain.names[0], 64, 0)


def test_a_head_that_everybody_shares_is_not_the_key_for_long() -> None:
    depth = Depth()
    keys = [depth.key(of_ids((0, 1000), (number, 100)), BACKENDS) for number in range(200)]
    assert {key.tokens for key in keys[: LEAST_COUNT - 1]} == {64}
    late = keys[2 * LEAST_COUNT :]
    assert len({key.value for key in late}) == len(late)
    assert min(key.tokens for key in late) > 1000
    assert {key.popular_tokens for key in late} <= set(range(800, 1001))


def test_heads_within_heads_are_passed_one_after_the_other() -> None:
    """One system prompt, four applications behind it, and many chats in each."""
    depth, draw = Depth(), random.Random(1)
    keys = [asked(depth, 1, 10 + draw.randrange(4)) for _ in range(400)]
    assert {(key.tokens, key.popular_tokens) for key in keys[-200:]} == {(192, 128)}
    assert min(key.value for key in keys[-200:]) >= NEW


def test_a_prompt_that_never_branches_keeps_its_shortest_key_however_popular_it_is() -> None:
    depth, chain = Depth(), of_ids((1, 1000))
    keys = {depth.key(chain, BACKENDS) for _ in range(1000)}
    assert keys == {DepthKey(chain.names[0], 64, 0)}


def test_one_that_goes_its_own_way_now_and_then_does_not_make_a_branch() -> None:
    depth, chain = Depth(), named(1, 2, 3)
    for number in range(1000):
        assert depth.key(chain, BACKENDS).popular_tokens == 0
        if number % 20 == 0:
            assert asked(depth, 1, 2).popular_tokens == 0


def test_what_is_usual_may_change() -> None:
    depth = Depth()
    for way in (2, 3):
        for _ in range(200):
            key = depth.key(named(1, way, 5), BACKENDS)
        assert key.popular_tokens == 0, "for as long as all go on in one way, whichever that is"


@pytest.mark.parametrize(("backends", "popular"), [(2, False), (64, True)])
def test_popular_is_a_share_of_what_one_backend_gets(backends: int, popular: bool) -> None:
    """One request in 100: too many for one of 64 backends, not for one of 2."""
    depth = Depth()
    for other in range(5000):
        asked(depth, 10_000 + other, backends=backends)
        if other % 100 == 0:
            key = asked(depth, 1, backends=backends)
    assert (key.tokens, key.popular_tokens) == ((128, 64) if popular else (64, 0))


def test_tenants_with_prompts_of_their_own_have_one_key_each() -> None:
    """A thousand of them on a few backends: hardly one is ever popular, so each lives in one place."""
    depth, draw = Depth(), random.Random(3)
    keys: dict[int, set[int]] = {}
    for _ in range(5000):
        tenant = 1 + draw.randrange(1000)
        keys.setdefault(tenant, set()).add(asked(depth, tenant, 10_000 + tenant).value)
    assert sum(len(of_tenant) > 1 for of_tenant in keys.values()) <= len(keys) / 100


def test_a_chat_that_is_still_short_keeps_its_key_over_its_turns() -> None:
    depth = Depth()
    texts = ["Hello!", *(prose(30, at) for at in range(12))]
    keys = [depth.key(chain_of(conversation(*texts[:said])), BACKENDS) for said in (1, 3, 5, 7, 9, 11, 13)]
    assert len({key.value for key in keys}) == 1


def test_a_young_chat_after_a_popular_head_keeps_its_key_over_its_turns() -> None:
    depth = Depth()
    system = prose(640, "system")
    for other in range(100):
        depth.key(chain_of(conversation(prose(50, other), system=system)), BACKENDS)
    texts = [prose(20, ("chat", at)) for at in range(13)]
    keys = [
        depth.key(chain_of(conversation(*texts[:said], system=system)), BACKENDS)
        for said in (1, 3, 5, 7, 9, 11, 13)
    ]
    assert len({key.value for key in keys}) == 1
    assert keys[0].tokens > 640


def test_a_long_conversation_keeps_its_key_though_half_of_the_requests_are_its_own() -> None:
    depth = Depth()
    texts = [prose(40, at) for at in range(101)]
    keys = set()
    for said in range(1, 102, 2):
        keys.add(depth.key(chain_of(conversation(*texts[:said])), BACKENDS).value)
        asked(depth, next(_NEW))
    assert len(keys) == 1


# Going back and forth.


def test_what_is_popular_stays_so_until_it_has_less_than_half_of_the_share() -> None:
    depth = Depth(popular_share=0.5, least_count=4)

    def popular(one_in: int, rounds: int) -> list[bool]:
        found = []
        for _ in range(rounds):
            found.append(asked(depth, 1, backends=1).popular_tokens > 0)
            for _ in range(one_in - 1):
                asked(depth, next(_NEW), backends=1)
        return found

    assert popular(1, 10)[-1]
    assert all(popular(3, 60)), "a third of the requests is less than the share and more than its half"
    assert not popular(8, 400)[-1]
    assert not any(popular(3, 60)), "and not enough to become popular again"


def test_it_takes_a_few_requests_to_be_popular_however_large_the_fleet_is() -> None:
    depth = Depth()
    popular = [asked(depth, 1, backends=1000).popular_tokens for _ in range(LEAST_COUNT)]
    assert popular == [0] * (LEAST_COUNT - 1) + [64]


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    depth = Depth()
    assert asked(depth, 1, times=100).popular_tokens == 64
    for _ in range(2 * LEAST_WINDOW):
        asked(depth, next(_NEW))
    assert not {1} & (depth._popular | depth._ways.keys() | depth._young.keys() | depth._old.keys())
    assert asked(depth, 1).popular_tokens == 0


@pytest.mark.parametrize("backends", [0, 1])
def test_a_fleet_of_one_backend_or_none_has_keys(backends: int) -> None:
    assert Depth().key(named(1), backends).value == 1


# Asking without counting.


def test_peeking_gives_the_key_that_comes_and_changes_nothing() -> None:
    peeked_at, untouched = Depth(), Depth()
    agreed = 0
    for number in range(3000):
        chain = named(1, 2, 10 + number % 7, NEW + number)
        peeked = [peeked_at.peek(chain, BACKENDS) for _ in range(2)]
        key = peeked_at.key(chain, BACKENDS)
        assert peeked[0] == peeked[1]
        assert key == untouched.key(chain, BACKENDS)
        agreed += key == peeked[0]
    assert agreed >= 2950


def test_peeking_at_a_prompt_of_which_all_is_popular_finds_its_key() -> None:
    depth = Depth()
    asked(depth, 1, times=100)
    for _ in range(100):
        key = depth.key(named(1, 2), BACKENDS)
        asked(depth, 1)
    assert depth.peek(named(1, 2), BACKENDS) == key == DepthKey(2, 128, 64)


# Memory, and other routers.


@pytest.mark.parametrize("backends", [1, 64])
def test_memory_is_bounded_however_many_keys_come(backends: int) -> None:
    depth, draw = Depth(), random.Random(6)
    window = max(LEAST_WINDOW, round(2 * LEAST_COUNT * backends / POPULAR_SHARE))
    for _ in range(100_000):
        depth.key(named(1, 2, draw.getrandbits(64), draw.getrandbits(64)), backends)
        assert len(depth) <= 3 * window + 10
    assert depth._popular == {1, 2}
    assert depth._ways.keys() == {1, 2}


def test_beginnings_that_were_popular_leave_no_trace() -> None:
    depth = Depth()
    for hit in range(1, 500):
        asked(depth, hit, times=100)
    assert len(depth._popular) <= 1 + LEAST_WINDOW // 100
    assert len(depth._ways) <= 1 + LEAST_WINDOW // 100


def test_routers_that_see_halves_of_the_same_traffic_agree() -> None:
    """Thirty applications, the popular ones much more so than the others, and chats of their own in each."""
    draw = random.Random(7)
    weights = [1 / rank for rank in range(1, 31)]
    applications = draw.choices(range(1, 31), weights, k=15_000)
    both = Depth(), Depth()
    agreed = compared = 0
    for number, application in enumerate(applications):
        chat = NEW + application * 10_000 + draw.randrange(10_000)
        chain = named(application, 100 + application, 200 + application, chat, 2 * chat)
        mine, other = both if draw.random() < 0.5 else both[::-1]
        key = mine.key(chain, BACKENDS)
        if number >= 5000:
            compared += 1
            agreed += key.value == other.peek(chain, BACKENDS).value
    assert agreed / compared >= 0.95
