from __future__ import annotations

import json
from typing import Any

from prefix_router.openai_api.request import parse
from prefix_router.routing.chain import PrefixChain, block_chain, prefix_chain

BLOCK = 16


def chain_of(*texts: str, **fields: Any) -> PrefixChain:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    body = json.dumps({"messages": messages, **fields}).encode()
    chain = block_chain(parse("/v1/chat/completions", None, body, {}), BLOCK)
    assert chain is not None
    return chain


def shared(one: PrefixChain, other: PrefixChain) -> int:
    """How many blocks two chains have in common from the first on."""
    return sum(ours == theirs for ours, theirs in zip(one.names, other.names, strict=False))


def test_there_is_a_name_for_each_block_and_one_for_the_rest() -> None:
    chain = chain_of("x" * 1000)
    assert len(chain.names) == -(-chain.tokens // BLOCK)
    assert len(set(chain.names)) == len(chain.names)


def test_two_prompts_share_the_blocks_before_they_differ() -> None:
    start = "a document " * 100
    one, other = chain_of(start + "what?"), chain_of(start + "when?")
    assert shared(one, other) == len(start) // 64
    assert one.names[-1] != other.names[-1]


def test_length_and_ends_are_those_of_the_prefix_chain() -> None:
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": "hello " * 99} for role in roles]
    body = json.dumps({"messages": messages}).encode()
    request = parse("/v1/chat/completions", None, body, {})
    whole, blocks = prefix_chain(request), block_chain(request, BLOCK)
    assert whole is not None
    assert blocks is not None
    assert blocks.tokens == whole.tokens
    assert len(blocks.ends) == 2
    assert [(end.tokens, end.answer_tokens) for end in blocks.ends] == [
        (end.tokens, end.answer_tokens) for end in whole.ends
    ]


def test_an_end_has_the_same_name_whatever_follows() -> None:
    short, long = chain_of("hello there"), chain_of("hello there", "hi", "and then?")
    assert short.ends[0][:2] == long.ends[0][:2]
    assert chain_of("hello where").ends[0].name != short.ends[0].name


def test_prompts_for_other_models_salts_and_tenants_share_nothing() -> None:
    text = "x" * 1000
    chains = [
        chain_of(text),
        chain_of(text, model="m"),
        chain_of(text, cache_salt="m"),
        chain_of(text, prompt_cache_key="m"),
    ]
    assert len({chain.names[0] for chain in chains}) == len(chains)


def test_what_has_no_prompt_or_an_unreadable_one_has_no_chain() -> None:
    for body in (b"{}", b'{"messages": [7]}'):
        assert block_chain(parse("/v1/chat/completions", None, body, {}), BLOCK) is None


def test_a_prompt_of_token_ids_has_a_block_for_each_16_of_them() -> None:
    body = json.dumps({"prompt": list(range(100))}).encode()
    chain = block_chain(parse("/v1/completions", None, body, {}), BLOCK)
    assert chain is not None
    assert (chain.tokens, len(chain.names)) == (100, 7)
    assert [end.tokens for end in chain.ends] == [100]
