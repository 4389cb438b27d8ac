from __future__ import annotations

from prefix_router.routing.decision import Query, Reason
from prefix_router.routing.explain import RING_ORDER_LENGTH, explain
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring
from prefix_router.routing.strategies import build_strategy

THRESHOLD = 4


def fleet_of(count: int, *, weight: int = 1, models: frozenset[str] | None = None) -> Fleet:
    names = [BackendName(f"b{number}") for number in range(count)]
    members = tuple(
        Member(Backend(name, f"http://{name}", weight), BackendState.HEALTHY, InFlight(), models)
        for name in names
    )
    return Fleet(members, Ring(dict.fromkeys(names, weight), 16))


def query(key: int | None = 12345, model: str | None = None) -> Query:
    return Query(key=key, model=model, draw=0)


def test_the_neighbouring_decisions_come_from_the_same_strategy() -> None:
    fleet = fleet_of(3, weight=2)
    strategy = build_strategy("prefix_aware", concurrency_threshold=THRESHOLD)
    found = explain(query(), fleet, strategy, THRESHOLD)
    assert found.decision is not None
    assert found.if_home_full is not None
    assert found.if_home_down is not None
    assert found.decision.reason is Reason.AFFINITY
    assert found.if_home_full.reason is Reason.OVERFLOW
    assert found.if_home_down.reason is Reason.FAILOVER
    assert found.if_home_down.member.name == found.ring_order[1]
    assert [member.in_flight.count for member in fleet.members] == [0, 0, 0]


def test_asking_moves_no_counter_of_the_strategy() -> None:
    fleet = fleet_of(3)
    asked = build_strategy("round_robin", concurrency_threshold=1)
    untouched = build_strategy("round_robin", concurrency_threshold=1)
    explain(query(), fleet, asked, 1)
    for _ in range(4):
        one, other = asked.choose(query(), fleet), untouched.choose(query(), fleet)
        assert one is not None
        assert other is not None
        assert one.member.name == other.member.name


def test_nobody_to_ask_is_no_decision() -> None:
    strategy = build_strategy("prefix_aware", concurrency_threshold=1)
    found = explain(query(), Fleet((), Ring({}, 16)), strategy, 1)
    assert (found.decision, found.ring_order, found.if_home_full, found.if_home_down) == (
        None,
        (),
        None,
        None,
    )


def test_the_order_lists_serving_backends_only_and_not_endlessly() -> None:
    strategy = build_strategy("prefix_aware", concurrency_threshold=1)
    assert len(explain(query(), fleet_of(40), strategy, 1).ring_order) == RING_ORDER_LENGTH
    serving = fleet_of(3, models=frozenset({"m"}))
    assert explain(query(model="other"), serving, strategy, 1).ring_order == ()
    assert explain(query(key=None), serving, strategy, 1).ring_order == ()
