from __future__ import annotations

import pytest

from prefix_router.fleetsim.policies import BASELINE_NAMES, POLICY_NAMES, build_policy
from prefix_router.routing.strategies import STRATEGY_NAMES
from tests.support.fleets import backend_names, busy
from tests.support.simulated import routed, simulated


def test_the_strategies_of_the_router_and_the_baselines_can_be_simulated() -> None:
    assert set(POLICY_NAMES) == set(STRATEGY_NAMES) | set(BASELINE_NAMES)
    assert {"plain_ring", "bounded_ring", "smg_prefix_hash", "radix_tree"} <= set(BASELINE_NAMES)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_each_is_built_by_its_name_and_chooses(name: str) -> None:
    fleet = busy(dict.fromkeys(backend_names("a", "b"), 0))
    assert build_policy(name, 10).choose(routed(simulated([1])), fleet, 0.0) is not None


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_each_says_so_when_nobody_can_take_a_request(name: str) -> None:
    assert build_policy(name, 10).choose(routed(simulated([1])), busy({}), 0.0) is None


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'dice'; known: .*prefix_aware.*radix_tree"):
        build_policy("dice", 10)
