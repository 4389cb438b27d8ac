"""What every strategy must hold in any fleet: never a worse choice than it claims, never a forbidden one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.routing.capacity import least_loaded
from prefix_router.routing.decision import Query, Reason, Strategy
from prefix_router.routing.fleet import BackendName, BackendState, Fleet, Member
from prefix_router.routing.strategies import STRATEGY_NAMES, build_strategy
from tests.support.fleets import fleet_of, member

NAMES = [BackendName(f"backend-{index}") for index in range(6)]
MODELS = ("m", "n")
bits = st.integers(0, 2**64 - 1)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    return fleet_of(
        [
            member(
                name,
                draw(st.integers(0, 12)),
                weight=draw(st.integers(1, 3)),
                state=draw(st.sampled_from(BackendState)),
                models=draw(st.none() | st.sets(st.sampled_from(MODELS))),
                draining=draw(st.booleans()),
                trials=draw(st.integers(0, 1)),
                last_resort=draw(st.booleans()),
                limit=draw(st.none() | st.integers(1, 6)),
            )
            for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
        ],
        virtual_nodes=8,
    )


queries = st.builds(
    Query,
    key=st.none() | bits,
    model=st.none() | st.sampled_from(MODELS),
    draw=bits,
    session=st.none() | st.text(max_size=5),
    failed=st.frozensets(st.sampled_from(NAMES), max_size=2),
    refused=st.frozensets(st.sampled_from(NAMES), max_size=2),
)
thresholds = st.integers(1, 8)


def strategies(threshold: int) -> list[Strategy]:
    return [build_strategy(name, threshold) for name in STRATEGY_NAMES]


def may_take(query: Query, candidate: Member) -> bool:
    return (
        candidate.admits()
        and candidate.serves(query.model)
        and candidate.name not in query.failed | query.refused
    )


@given(fleets(), queries, thresholds)
@settings(deadline=None)
def test_choice_is_always_a_backend_that_may_take_the_request(
    fleet: Fleet, query: Query, threshold: int
) -> None:
    for strategy in strategies(threshold):
        decision = strategy.choose(query, fleet)
        if decision is not None:
            assert may_take(query, decision.member), strategy.name


@given(fleets(), queries, thresholds)
@settings(deadline=None)
def test_there_is_no_choice_only_when_nobody_may_take_the_request(
    fleet: Fleet, query: Query, threshold: int
) -> None:
    somebody = any(may_take(query, candidate) for candidate in fleet.members)
    for strategy in strategies(threshold):
        assert (strategy.choose(query, fleet) is not None) == somebody, strategy.name


@given(fleets(), queries, thresholds)
@settings(deadline=None)
def test_home_with_room_always_gets_the_request(fleet: Fleet, query: Query, threshold: int) -> None:
    decision = build_strategy("prefix_aware", threshold).choose(query, fleet)
    if query.key is None or decision is None:
        return
    home = next(fleet.successors(query.key, query.model))
    has_room = home.in_flight.count < threshold * home.backend.weight
    assert decision.home == home.name
    assert (decision.reason is Reason.AFFINITY) == (may_take(query, home) and has_room)
    assert (decision.member is home) == (decision.reason in (Reason.AFFINITY, Reason.SATURATED))


@given(fleets(), queries, thresholds)
@settings(deadline=None)
def test_overflow_and_keyless_requests_go_to_a_least_loaded_backend(
    fleet: Fleet, query: Query, threshold: int
) -> None:
    for strategy in (
        build_strategy("prefix_aware", threshold),
        build_strategy("least_outstanding_requests", threshold),
    ):
        decision = strategy.choose(query, fleet)
        if decision is None or decision.reason in (Reason.AFFINITY, Reason.SATURATED, Reason.FAILOVER):
            continue
        chosen = relative_load(decision.member)
        others = [candidate for candidate in fleet.members if may_take(query, candidate)]
        lower = [candidate for candidate in others if relative_load(candidate) < chosen]
        # An overflow leaves a full backend behind, which is never less loaded than where it goes.
        assert not lower


@given(fleets(), queries, thresholds)
@settings(deadline=None)
def test_two_routers_with_equal_fleets_agree(fleet: Fleet, query: Query, threshold: int) -> None:
    backwards = fleet_of(reversed(fleet.members), virtual_nodes=8)
    here = build_strategy("prefix_aware", threshold).choose(query, fleet)
    there = build_strategy("prefix_aware", threshold).choose(query, backwards)
    if query.key is not None:
        assert here == there
    for name in STRATEGY_NAMES:
        assert build_strategy(name, threshold).choose(query, fleet) == build_strategy(name, threshold).choose(
            query, fleet
        )


@given(fleets())
@settings(deadline=None)
def test_least_loaded_are_exactly_the_backends_of_the_lowest_load(fleet: Fleet) -> None:
    lowest = min((relative_load(candidate) for candidate in fleet.members), default=None)
    expected = [candidate for candidate in fleet.members if relative_load(candidate) == lowest]
    assert least_loaded(fleet.members) == expected


def relative_load(candidate: Member) -> Fraction:
    return Fraction(candidate.in_flight.count, candidate.backend.weight)
