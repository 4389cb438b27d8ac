from __future__ import annotations

import pytest

from prefix_router.analyze import contenders as contenders_module
from prefix_router.analyze.contenders import AUTO, BASELINE, CANDIDATE_LENGTHS, LOAD_ALONE, contenders
from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.routing.strategies import STRATEGY_NAMES


def lengths(longest_prompt: int) -> list[int]:
    return [found.prefix_tokens for found in contenders(longest_prompt) if found.prefix_tokens is not None]


def test_the_baseline_comes_first_and_everything_has_a_name_of_its_own() -> None:
    found = contenders(100_000)
    assert found[0] is BASELINE
    assert {LOAD_ALONE, AUTO} <= set(found)
    labels = [contender.label for contender in found]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (50, [128]),
        (128, [128]),
        (129, [128, 256]),
        (1000, [128, 256, 512, 1024]),
        (10**6, [*CANDIDATE_LENGTHS]),
    ],
)
def test_of_the_lengths_beyond_every_prompt_one_is_enough(longest: int, expected: list[int]) -> None:
    assert lengths(longest) == expected


def test_only_what_the_router_has_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {contender.strategy for contender in contenders(1000)} <= set(STRATEGY_NAMES)
    monkeypatch.setattr(contenders_module, "STRATEGY_NAMES", ("random", "prefix_aware"))
    assert {contender.strategy for contender in contenders(1000)} == {"random", "prefix_aware"}


def test_a_plan_has_the_fleets_values_and_the_contenders_own() -> None:
    fleet = FleetPlan("random", replicas=3, profile="llama-3.1-8b-h100", concurrency_threshold=64, seed=5)
    plan = contenders(1000)[2].plan(fleet)
    assert (plan.strategy, plan.prefix_tokens, plan.depth_auto) == ("prefix_aware", 128, False)
    assert (plan.replicas, plan.profile, plan.seed) == (3, "llama-3.1-8b-h100", 5)
    assert plan.concurrency_threshold == 64
    assert AUTO.plan(fleet, 8).depth_auto
    assert AUTO.plan(fleet, 8).concurrency_threshold == 8
