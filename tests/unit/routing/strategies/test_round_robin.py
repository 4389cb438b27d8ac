from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.strategies.round_robin import RoundRobin
from tests.support.fleets import fleet_of, member, numbered, query

if TYPE_CHECKING:
    from prefix_router.routing.fleet import Fleet


def turn(strategy: RoundRobin, fleet: Fleet, **details: object) -> str:
    decision = strategy.choose(query(**details), fleet)  # type: ignore[arg-type]
    assert decision is not None
    assert decision.reason is Reason.ROUND_ROBIN
    assert decision.home is None
    return decision.member.name


def turns(strategy: RoundRobin, fleet: Fleet, count: int, **details: object) -> str:
    return "".join(turn(strategy, fleet, **details) for _ in range(count))


def test_backends_take_turns_in_configuration_order() -> None:
    fleet = fleet_of([member("b"), member("a"), member("c")])
    assert turns(RoundRobin(), fleet, 7) == "bacbacb"


def test_turns_are_in_proportion_to_weight_in_each_round() -> None:
    fleet = fleet_of([member("a"), member("b", weight=3), member("c", weight=6)])
    strategy = RoundRobin()
    for _ in range(20):
        assert Counter(turns(strategy, fleet, 10)) == {"a": 1, "b": 3, "c": 6}


def test_turns_of_a_heavy_backend_are_not_one_burst() -> None:
    fleet = fleet_of([member("a", weight=3), member("b", weight=3)])
    assert turns(RoundRobin(), fleet, 6) == "ababab"


def test_successor_of_a_backend_that_is_out_does_not_get_its_turns() -> None:
    healthy = [member(name) for name in "abcd"]
    fleet = fleet_of([member("a", state=BackendState.DOWN), *healthy[1:]])
    strategy = RoundRobin()
    turns(strategy, fleet_of(healthy), 6)
    assert Counter(turns(strategy, fleet, 30)) == {"b": 10, "c": 10, "d": 10}


def test_returning_backend_does_not_catch_up_on_what_it_missed() -> None:
    strategy = RoundRobin()
    everyone = fleet_of(member(name) for name in "abc")
    turns(strategy, everyone, 3)
    turns(strategy, fleet_of([member("a", state=BackendState.DOWN), member("b"), member("c")]), 100)
    back = turns(strategy, everyone, 12)
    assert back[0] == "a"
    assert all(abs(back.count(name) - 4) <= 1 for name in "abc")


def test_newcomer_starts_with_its_fair_share() -> None:
    strategy = RoundRobin()
    turns(strategy, fleet_of([member("a"), member("b")]), 50)
    counts = Counter(turns(strategy, fleet_of(member(name) for name in "abc"), 30))
    assert all(abs(count - 10) <= 1 for count in counts.values())


def test_models_with_backends_of_their_own_do_not_disturb_each_others_turns() -> None:
    fleet = fleet_of(
        [
            member("a", models=["m"], weight=2),
            member("b", models=["m"]),
            member("c", models=["n"]),
            member("d", models=["n"]),
        ]
    )
    strategy = RoundRobin()
    seen: Counter[str] = Counter()
    for _ in range(30):
        seen[turn(strategy, fleet, model="m")] += 1
        for _ in range(4):
            seen[turn(strategy, fleet, model="n")] += 1
    assert seen == {"a": 20, "b": 10, "c": 60, "d": 60}


def test_backend_skipped_by_a_retry_is_next() -> None:
    fleet = fleet_of(member(name) for name in "abc")
    strategy = RoundRobin()
    assert turn(strategy, fleet, failed="a") == "b"
    assert turns(strategy, fleet, 2) == "ac"


def test_nobody_routable_is_no_turn() -> None:
    fleet = fleet_of([member("a"), member("b")])
    strategy = RoundRobin()
    assert strategy.choose(query(failed="a", refused="b"), fleet) is None
    assert strategy.choose(query(), fleet_of([])) is None
    assert turns(strategy, fleet, 2) == "ab"


def test_backends_that_left_are_forgotten() -> None:
    strategy = RoundRobin()
    for generation in range(50):
        fleet = fleet_of((member(f"{generation}-{name}") for name in numbered(3)), virtual_nodes=1)
        for _ in range(6):
            strategy.choose(query(), fleet)
        assert strategy.remembered_count == 3
