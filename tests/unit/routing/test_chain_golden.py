"""Chains that must never change: routers of two versions in front of one fleet have to agree.

A case that fails here is not to be updated. Either the change is a mistake, or the project gives up every
warm cache of every fleet at its next upgrade: then `VERSION` in `routing/chain.py` changes with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefix_router.openai_api.request import Api, parse
from prefix_router.routing.chain import LEVEL_TOKENS, VERSION, prefix_chain

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "chain_golden.json").read_text("utf-8")
)
CASES: list[dict[str, Any]] = GOLDEN["cases"]


def chain_of(case: dict[str, Any]) -> dict[str, Any] | None:
    """The chain as the file has it: the last of the levels, since all before it are hashed into it."""
    word, times = case.get("filler", ("", 0))
    body = case["body"].replace("{filler}", word * times).encode()
    chain = prefix_chain(parse(case["path"], case.get("content_type"), body, case.get("headers", {})))
    if chain is None:
        return None
    return {
        "tokens": chain.tokens,
        "levels": len(chain.names),
        "last": f"{chain.names[-1]:016x}" if chain.names else None,
        "ends": [[end.tokens, f"{end.name:016x}", end.answer_tokens] for end in chain.ends],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_request_has_the_chain_that_it_has_always_had(case: dict[str, Any]) -> None:
    assert chain_of(case) == case["chain"]


def test_the_golden_chains_are_of_this_version_and_these_levels() -> None:
    assert GOLDEN["version"] == VERSION.decode()
    assert tuple(GOLDEN["level_tokens"]) == LEVEL_TOKENS


def test_the_golden_chains_cover_every_api_long_prompts_and_none() -> None:
    assert {parse(case["path"], None, b"{}", {}).api for case in CASES} == set(Api)
    chains = [case["chain"] for case in CASES]
    assert None in chains
    assert max(chain["levels"] for chain in chains if chain) == len(LEVEL_TOKENS)
    assert max(len(chain["ends"]) for chain in chains if chain) > 2


def test_golden_cases_share_a_chain_where_they_should_and_only_there() -> None:
    chains = {case["name"]: case["chain"] for case in CASES}
    for case in CASES:
        assert case["chain"] == chains[case.get("same_as", case["name"])]
    ends = [case["chain"]["ends"][-1][1] for case in CASES if case["chain"] and "same_as" not in case]
    assert len(set(ends)) == len(ends)
