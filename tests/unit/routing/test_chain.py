from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from prefix_router.routing.chain import (
    BYTES_PER_TOKEN,
    LEVEL_TOKENS,
    LONGEST_TOKENS,
    MOST_ENDS,
    VERSION,
    PrefixChain,
    block_chain,
    prefix_chain,
)
from tests.support.chains import (
    Prompt,
    Request,
    Turn,
    chain_of,
    chat,
    conversation,
    media,
    prose,
    text,
    turn,
)

CONVERSATION = chat(turn("system", "Be brief. " * 50), turn("user", "Hi " * 50))


def shared(one: PrefixChain, other: PrefixChain) -> int:
    """How many levels two chains have in common from the first on."""
    count = 0
    for ours, theirs in zip(one.names, other.names, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


# Levels.


def test_levels_are_even_at_first_and_then_in_proportion() -> None:
    assert LEVEL_TOKENS[:3] == (64, 128, 192)
    assert LEVEL_TOKENS[-1] == LONGEST_TOKENS
    for before, after in pairwise(LEVEL_TOKENS):
        assert after - before == 64 if before < 4096 else before / 64 <= after - before <= before / 32
    assert sum(tokens <= 128_000 for tokens in LEVEL_TOKENS) == 222


def test_every_power_of_two_from_the_first_level_on_is_a_level() -> None:
    assert {1 << bits for bits in range(6, 19)} <= set(LEVEL_TOKENS)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 4096, 5000, 100_000])
def test_a_prompt_has_the_levels_that_fit_its_length(tokens: int) -> None:
    chain = chain_of(Request(Prompt(ids=range(tokens))))
    assert chain.tokens == tokens
    assert chain.levels() == len(chain.names) == sum(level <= tokens for level in LEVEL_TOKENS)
    assert len(set(chain.names)) == len(chain.names)


def test_these_are_the_bytes_that_are_hashed() -> None:
    mark = b"\xff\xff\xff\xff"
    request = Request(
        Prompt([turn("user", "x" * 300)], (("tools", b"[]"),)), "m", cache_salt="s", affinity_id="a"
    )
    root = xxh3_64_intdigest(
        VERSION
        + (mark + b"field\xfemodel\xfem")
        + (mark + b"field\xfecache_salt\xfes")
        + (mark + b"field\xfeaffinity_id\xfea")
    )
    laid_out = (
        (mark + b"field\xfetools\xfe[]")
        + (mark + b"turn\xfeuser\xfe")
        + (mark + b"part\xfetext\xfe")
        + b"x" * 300
    )
    chain = chain_of(request)
    first = xxh3_64_intdigest(laid_out[:256], root)
    assert chain.names == [first]
    assert chain.ends == [(-(-len(laid_out) // 4), xxh3_64_intdigest(laid_out[256:], first), 0)]


def test_a_token_is_four_bytes_of_text_and_a_part_of_one_counts() -> None:
    marks = chain_of(chat(turn("user", ""))).tokens
    assert chain_of(chat(turn("user", "x" * 400))).tokens - marks in {99, 100}
    assert chain_of(chat(turn("user", "日" * 400))).tokens - marks in {299, 300}


def test_a_prompt_is_never_shorter_than_a_token() -> None:
    assert chain_of(Request(Prompt(ids=[]))).tokens == 1
    assert chain_of(chat()).tokens == 1


# What changes a chain, and what does not.


@pytest.mark.parametrize(
    "other",
    [
        replace(CONVERSATION, model="n"),
        replace(CONVERSATION, model=None),
        replace(CONVERSATION, cache_salt="s"),
        replace(CONVERSATION, affinity_id="a"),
        chat(*CONVERSATION.prompt.said if CONVERSATION.prompt else (), tools=b"[]"),
        chat(turn("developer", "Be brief. " * 50), turn("user", "Hi " * 50)),
        chat(turn("system", "be brief. " * 50), turn("user", "Hi " * 50)),
        chat(turn("system", "Be", " brief. " + "Be brief. " * 49), turn("user", "Hi " * 50)),
        chat(("system", [media("x"), text("Be brief. " * 50)]), turn("user", "Hi " * 50)),
        chat(("system", [("thinking", "Be brief. " * 50, True)]), turn("user", "Hi " * 50)),
    ],
)
def test_whatever_the_beginning_is_made_of_changes_every_level(other: Request) -> None:
    one, two = chain_of(CONVERSATION), chain_of(other)
    assert len(one.names) >= 2
    assert not set(one.names) & set(two.names)
    assert one.ends[-1].name != two.ends[-1].name


def test_salt_affinity_and_model_do_not_stand_for_each_other() -> None:
    prompt = Prompt([turn("user", "Hi " * 200)])
    requests = [
        Request(prompt, model="x"),
        Request(prompt, model=None, cache_salt="x"),
        Request(prompt, model=None, affinity_id="x"),
        Request(replace(prompt, fields=(("x", b""),)), model=None),
    ]
    assert len({chain_of(request).names[0] for request in requests}) == len(requests)


@pytest.mark.parametrize("pair", [(("ab", "c"), ("a", "bc")), (("", "a"), ("a", "")), (("a",), ("a", ""))])
def test_pieces_have_bounds(pair: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    one, two = (chain_of(chat(turn("user", *texts))) for texts in pair)
    assert one.ends[-1].name != two.ends[-1].name


def test_a_text_cannot_pretend_to_be_a_turn() -> None:
    honest = chat(turn("user", "a"), turn("user", "b"))
    forged = chat(turn("user", "a\udcffturn\udcfeuser\udcfe\udcffpart\udcfetext\udcfeb"))
    assert prefix_chain(forged) is None
    assert chain_of(chat(turn("user", "a<turn user>b"))).ends != chain_of(honest).ends


def test_what_follows_changes_no_level_before_it() -> None:
    start = prose(1000, "start")
    one, two = (chain_of(conversation(start + more)) for more in ("", prose(700, "more")))
    assert shared(one, two) == len(one.names) < len(two.names)
    assert chain_of(conversation(start, "an answer", "a question")).names[: len(one.names)] == one.names


def test_two_prompts_share_the_levels_before_they_differ() -> None:
    ids = list(range(10_000))
    one = chain_of(Request(Prompt(ids=ids)))
    for differs in (0, 63, 64, 1000, 5000, 9999):
        other = chain_of(Request(Prompt(ids=[*ids[:differs], 77_777, *ids[differs + 1 :]])))
        assert shared(one, other) == sum(level <= differs for level in LEVEL_TOKENS)


def test_short_media_count_whole_and_long_ones_by_their_digest() -> None:
    short, long = "http://x/1", "data:image/png;base64," + "QUJD" * 100_000
    bare = chain_of(chat(("user", [media("")]))).tokens
    assert chain_of(chat(("user", [media(short)]))).tokens - bare in {2, 3}
    assert chain_of(chat(("user", [media(long)]))).tokens - bare == 16 // BYTES_PER_TOKEN
    ends = [chain_of(chat(("user", [media(long + end)]))).ends[-1].name for end in ("x", "y")]
    assert ends[0] != ends[1]


def test_ids_are_told_apart_by_value_and_order_and_not_by_their_number() -> None:
    prompts = [[1, 2, 3], [1, 3, 2], [1, 2, 4], [1, 2], [2**32 - 1, 0, 3], [258, 3, 0]]
    assert len({chain_of(Request(Prompt(ids=ids))).ends[-1].name for ids in prompts}) == len(prompts)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)
SAID = st.lists(
    st.tuples(
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.lists(
            st.one_of(
                TEXTS.map(text),
                TEXTS.map(media),
                st.integers(0, 300).map(lambda size: text("long text " * size)),
            ),
            max_size=3,
        ),
    ),
    max_size=12,
)


@given(SAID, SAID, SAID)
def test_prompts_that_begin_alike_share_all_levels_of_the_beginning(
    start: list[Turn], one: list[Turn], other: list[Turn]
) -> None:
    beginning, first, second = (chain_of(chat(*said)) for said in (start, start + one, start + other))
    levels = len(beginning.names) if start else 0
    assert list(first.names[:levels]) == list(second.names[:levels]) == list(beginning.names[:levels])
    assert shared(first, second) == len(set(first.names) & set(second.names))


# Ends.


def test_the_last_end_is_that_of_the_prompt() -> None:
    chain = chain_of(CONVERSATION)
    assert [(end.tokens, end.answer_tokens) for end in chain.ends] == [(chain.tokens, 0)]


def test_each_prompt_of_a_conversation_ends_where_the_later_ones_say() -> None:
    texts = [prose(40 + 10 * at, at) for at in range(7)]
    chains = [chain_of(conversation(*texts[:said])) for said in (1, 3, 5, 7)]
    for at, chain in enumerate(chains):
        assert len(chain.ends) == at + 1
        assert [end[:2] for end in chain.ends] == [earlier.ends[-1][:2] for earlier in chains[: at + 1]]


def test_an_end_says_how_long_the_answer_is_that_follows() -> None:
    answer = prose(500, "answer")
    first, last = chain_of(conversation("How?", answer, "Thanks.")).ends
    assert 500 <= first.answer_tokens <= 510
    assert last.answer_tokens == 0
    assert first.tokens + first.answer_tokens < last.tokens


def test_an_answer_in_several_turns_ends_one_prompt() -> None:
    chain = chain_of(
        chat(turn("user", "a"), turn("assistant", "b"), turn("assistant", "c"), turn("user", "d"))
    )
    assert len(chain.ends) == 2
    assert chain.ends[0][:2] == chain_of(chat(turn("user", "a"))).ends[0][:2]


def test_an_answer_that_nobody_asked_for_ends_no_prompt() -> None:
    assert len(chain_of(chat(turn("assistant", "Welcome!"), turn("user", "Hi"))).ends) == 1


def test_the_results_of_tools_are_prompts_too() -> None:
    said = [
        turn("user", "What is the weather?"),
        turn("assistant", "call"),
        turn("tool", "rain"),
        turn("tool", "wind"),
        turn("assistant", "It rains."),
        turn("user", "Thanks."),
    ]
    chain = chain_of(chat(*said))
    prompts = (said[:1], said[:4], said)
    assert [end[:2] for end in chain.ends] == [chain_of(chat(*prompt)).ends[-1][:2] for prompt in prompts]


def test_a_prompt_that_ends_with_an_answer_ends_there_and_before_it() -> None:
    chain = chain_of(chat(turn("user", "Go on:"), turn("assistant", "Once")))
    asked, continued = chain.ends
    assert asked.tokens + asked.answer_tokens in {chain.tokens, chain.tokens + 1}
    assert (continued.tokens, continued.answer_tokens) == (chain.tokens, 0)


def test_of_many_ends_the_first_and_the_last_few_are_kept() -> None:
    texts = [f"turn {at} of a long conversation" for at in range(101)]
    chain = chain_of(conversation(*texts))
    assert len(chain.ends) == 2 * MOST_ENDS
    tokens = [end.tokens for end in chain.ends]
    assert tokens == sorted(tokens)
    shorter = [chain_of(conversation(*texts[: 2 * prompts + 1])).ends[-1] for prompts in range(51)]
    kept = shorter[:MOST_ENDS] + shorter[-MOST_ENDS:]
    assert [end[:2] for end in chain.ends] == [end[:2] for end in kept]


def test_a_prompt_may_end_exactly_at_a_level() -> None:
    chain = chain_of(Request(Prompt(ids=range(128))))
    assert (chain.tokens, len(chain.names), chain.ends[-1].tokens) == (128, 2, 128)
    longer = chain_of(Request(Prompt(ids=range(129))))
    assert longer.names == chain.names
    assert longer.ends[-1].name != chain.ends[-1].name


def test_ids_have_one_end() -> None:
    assert [end.tokens for end in chain_of(Request(Prompt(ids=range(500)))).ends] == [500]


# Prompts that are too long, cannot be read, or are not there.


def test_a_prompt_of_ids_that_is_too_long_is_its_beginning() -> None:
    one, two = (chain_of(Request(Prompt(ids=[7] * LONGEST_TOKENS + [more] * more))) for more in (0, 100))
    assert one == two
    assert len(one.names) == len(LEVEL_TOKENS)


def test_turns_past_the_longest_prompt_are_not_read() -> None:
    class Endless(Prompt):
        read = 0

        def turns(self) -> Iterator[Turn]:
            while True:
                Endless.read += 1
                yield turn("user", "x" * BYTES_PER_TOKEN * (LONGEST_TOKENS // 10))

    chain = chain_of(Request(Endless()))
    assert Endless.read == 10
    assert len(chain.names) == len(LEVEL_TOKENS)


class Unreadable(Prompt):
    def turns(self) -> Iterator[Turn]:
        yield turn("system", "readable")
        raise ValueError("not a message")


@pytest.mark.parametrize(
    "request_",
    [
        Request(None),
        Request(Unreadable()),
        chat(turn("user", "\ud800")),
        chat(turn("\ud800", "Hi")),
        chat(("user", [media("\ud800")])),
    ],
)
def test_what_has_no_prompt_or_an_unreadable_one_has_no_chain(request_: Request) -> None:
    assert prefix_chain(request_) is None
    assert block_chain(request_, 16) is None


@pytest.mark.parametrize(
    "request_",
    [
        replace(CONVERSATION, model="\ud800"),
        replace(CONVERSATION, cache_salt="\ud800"),
        replace(CONVERSATION, affinity_id="\ud800"),
    ],
)
def test_a_name_that_is_not_unicode_has_no_chain(request_: Request) -> None:
    assert prefix_chain(request_) is None


_PRINT_CHAIN = """
import json
from prefix_router.openai_api.request import parse
from prefix_router.routing.chain import prefix_chain
body = json.dumps({"model": "m", "tools": [{"b": 1, "a": {"y": None, "x": 2}}],
                   "chat_template_kwargs": {name: 1 for name in {"p", "q", "r", "s"}},
                   "messages": [{"role": "user", "content": "H\u00e9" * 500}]}).encode()
print(prefix_chain(parse("/v1/chat/completions", None, body, {})))
"""


def test_the_chain_is_the_same_in_every_process_under_every_hash_seed() -> None:
    def chain(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _PRINT_CHAIN]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert len({chain(seed) for seed in ("0", "1", "4242", "random")}) == 1
