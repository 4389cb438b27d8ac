from __future__ import annotations

import pytest

from prefix_router.routing.decision import Reason
from prefix_router.routing.strategies import STRATEGY_NAMES, build_strategy
from prefix_router.routing.strategies.adaptive import Adaptive
from tests.support.fleets import fleet_of, member, query


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_strategy_is_built_by_its_own_name(name: str) -> None:
    assert build_strategy(name, 10).name == name


def test_default_comes_first_and_all_are_there_to_compare() -> None:
    assert STRATEGY_NAMES[0] == "prefix_aware"
    assert set(STRATEGY_NAMES) == {
        "prefix_aware",
        "adaptive",
        "least_outstanding_requests",
        "round_robin",
        "random",
        "session",
    }


def test_each_build_is_a_new_object_with_a_state_of_its_own() -> None:
    fleet = fleet_of([member("a"), member("b")])
    for strategy in (build_strategy("round_robin", 1), build_strategy("round_robin", 1)):
        decision = strategy.choose(query(), fleet)
        assert decision is not None
        assert decision.member.name == "a"


def test_one_without_settings_is_carried_on_under_its_name_and_no_other_is() -> None:
    turns = build_strategy("round_robin", 1)
    assert build_strategy("round_robin", 2, turns) is turns
    assert build_strategy("random", 1, turns).name == "random"
    aware = build_strategy("prefix_aware", 1)
    assert build_strategy("prefix_aware", 2, aware) is not aware


def test_what_adaptive_has_learned_is_carried_on_and_the_setting_taken_over() -> None:
    alone = build_strategy("adaptive", 1)
    carried_on = build_strategy("adaptive", 2, alone, several_routers=True)
    assert carried_on is alone
    fresh = build_strategy("adaptive", 1, build_strategy("random", 1))
    for strategy, several_routers in ((carried_on, True), (fresh, False)):
        assert isinstance(strategy, Adaptive)
        assert strategy.several_routers is several_routers


def test_threshold_reaches_prefix_aware() -> None:
    fleet = fleet_of([member("a", 5)])
    decisions = [build_strategy("prefix_aware", threshold).choose(query(1), fleet) for threshold in (5, 6)]
    assert [decision and decision.reason for decision in decisions] == [Reason.SATURATED, Reason.AFFINITY]


def test_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="unknown strategy 'fastest'; known: prefix_aware, adaptive, least_outst"
    ):
        build_strategy("fastest", 1)
