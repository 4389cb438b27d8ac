from __future__ import annotations

import pytest

from prefix_router.fleetsim.baselines.radix_tree import RadixTree
from prefix_router.fleetsim.policy import RoutedRequest
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName, Fleet
from tests.support.fleets import backend_names, busy
from tests.support.simulated import routed, simulated

A, B, C = backend_names("a", "b", "c")


def fleet_with(**counts: int) -> Fleet:
    return busy({A: 0, B: 0, C: 0} | {BackendName(name): count for name, count in counts.items()})


def choose(tree: RadixTree, request: RoutedRequest, fleet: Fleet) -> tuple[str, Reason]:
    decision = tree.choose(request, fleet, 0.0)
    assert decision is not None
    return decision.member.name, decision.reason


def tree_with(*prompts: tuple[BackendName, list[int]], most_blocks: int = 1000) -> RadixTree:
    tree = RadixTree(most_blocks)
    for backend, blocks in prompts:
        tree.dispatched(routed(simulated(blocks)), backend, 0.0)
    return tree


def test_a_prompt_goes_where_most_of_it_has_been() -> None:
    tree = tree_with((A, [1, 2, 3, 4, 5]), (B, [1, 2, 3, 4, 5, 6, 7]), (C, [1, 2]))
    assert choose(tree, routed(simulated([1, 2, 3, 4, 5, 6, 8])), fleet_with(b=9)) == (B, Reason.AFFINITY)


@pytest.mark.parametrize(("matching", "follows"), [(4, False), (5, True)])
def test_a_match_of_half_the_prompt_is_not_enough(matching: int, follows: bool) -> None:
    tree = tree_with((A, list(range(matching))), (B, [90]), (C, [91, 92]))
    request = routed(simulated([*range(matching), *range(50, 58 - matching)]))
    expected = (A, Reason.AFFINITY) if follows else (B, Reason.KEYLESS)
    assert choose(tree, request, fleet_with()) == expected


def test_a_new_prompt_goes_to_the_smallest_tree() -> None:
    tree = tree_with((A, [1, 2]), (B, [3]), (C, [4, 5, 6]))
    assert choose(tree, routed(simulated([9])), fleet_with(b=9)) == (B, Reason.KEYLESS)


@pytest.mark.parametrize(
    ("counts", "imbalanced"),
    [
        ({"a": 32}, False),
        ({"a": 33}, True),
        ({"a": 363, "b": 330, "c": 330}, False),
        ({"a": 364, "b": 330, "c": 330}, True),
    ],
)
def test_an_imbalanced_fleet_is_balanced_whatever_the_prefix(
    counts: dict[str, int], imbalanced: bool
) -> None:
    tree = tree_with((A, [1, 2, 3]))
    name, reason = choose(tree, routed(simulated([1, 2, 3])), fleet_with(**counts))
    assert (name != A) is imbalanced
    assert reason is (Reason.OVERFLOW if imbalanced else Reason.AFFINITY)


def test_of_equal_matches_the_least_loaded_is_taken() -> None:
    tree = tree_with((A, [1, 2]), (B, [1, 2]), (C, [1, 2]))
    assert choose(tree, routed(simulated([1, 2])), fleet_with(a=2, b=1, c=2))[0] == B


def test_the_oldest_prompt_is_forgotten_first_and_from_its_tail() -> None:
    tree = tree_with((A, [1, 2, 3]), (A, [4, 5]), (A, [1]), most_blocks=4)
    kept = [tree.matched_blocks(A, routed(simulated(blocks)).names) for blocks in ([1, 2, 3], [4, 5])]
    assert kept == [2, 2]


def test_a_prompt_that_comes_again_is_new_again() -> None:
    tree = tree_with((A, [1, 2]), (A, [4, 5]), (A, [1]), (A, [6, 7]), most_blocks=4)
    kept = [tree.matched_blocks(A, routed(simulated(blocks)).names) for blocks in ([1, 2], [4, 5], [6, 7])]
    assert kept == [1, 1, 2]


def test_what_is_behind_a_gap_does_not_match() -> None:
    tree = tree_with((A, [1, 2, 3]))
    assert tree.matched_blocks(A, routed(simulated([9, 2, 3])).names) == 0
    assert tree.matched_blocks(B, routed(simulated([1, 2, 3])).names) == 0


def test_generated_blocks_are_not_remembered() -> None:
    tree = RadixTree()
    tree.dispatched(routed(simulated([1, 2], output=40, output_blocks=[3, 4])), A, 0.0)
    assert tree.matched_blocks(A, routed(simulated([1, 2, 3, 4])).names) == 2


def test_a_replica_that_has_restarted_is_forgotten() -> None:
    tree = tree_with((A, [1, 2]))
    tree.emptied(A, 1.0)
    assert tree.matched_blocks(A, routed(simulated([1, 2])).names) == 0
