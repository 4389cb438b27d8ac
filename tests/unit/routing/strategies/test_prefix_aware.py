from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import BackendState, Fleet
from prefix_router.routing.ring import DEFAULT_VIRTUAL_NODES
from prefix_router.routing.strategies.prefix_aware import PrefixAware
from tests.support.fleets import (
    backend_names,
    busy,
    fleet_of,
    key_homed_at,
    member,
    numbered,
    query,
    spread_keys,
    take,
)

A, B, C, D = backend_names("a", "b", "c", "d")
THRESHOLD = 10


def choose(fleet: Fleet, key: int | None, **details: object) -> Decision | None:
    return PrefixAware(THRESHOLD).choose(query(key, **details), fleet)  # type: ignore[arg-type]


def outcome(fleet: Fleet, key: int | None, **details: object) -> tuple[str, Reason]:
    decision = choose(fleet, key, **details)
    assert decision is not None
    return decision.member.name, decision.reason


def ring_order(fleet: Fleet, key: int) -> list[str]:
    return list(fleet.ring.successors(key))


# Step 2: home, while it has room.


@pytest.mark.parametrize("in_flight", [0, 1, THRESHOLD - 1])
def test_home_below_its_threshold_gets_the_request_however_idle_the_others_are(in_flight: int) -> None:
    fleet = busy({A: in_flight, B: 0, C: 0})
    decision = choose(fleet, key_homed_at(fleet, "a"))
    assert decision == Decision(fleet.members[0], Reason.AFFINITY, A)


def test_threshold_counts_per_share_of_weight() -> None:
    heavy = member("a", 2 * THRESHOLD - 1, weight=2)
    fleet = fleet_of([heavy, member("b"), member("c")])
    key = key_homed_at(fleet, "a")
    assert outcome(fleet, key) == ("a", Reason.AFFINITY)
    heavy.in_flight.count += 1
    assert outcome(fleet, key)[1] is Reason.OVERFLOW


def test_hot_backend_elsewhere_does_not_cost_others_their_affinity() -> None:
    fleet = busy({A: 500, B: 3, C: 0, D: 0})
    for key in spread_keys(300):
        home = fleet.ring.owner(key)
        if home != "a":
            assert outcome(fleet, key) == (home, Reason.AFFINITY)


# Step 3: overflow.


def test_full_home_overflows_to_the_least_loaded_when_that_is_clearly_less_loaded() -> None:
    fleet = busy({A: THRESHOLD, B: 4, C: 1, D: 4})
    decision = choose(fleet, key_homed_at(fleet, "a"))
    assert decision == Decision(fleet.members[2], Reason.OVERFLOW, A)


def test_ties_among_the_least_loaded_go_by_ring_order_for_the_key() -> None:
    fleet = busy({A: THRESHOLD, B: 1, C: 1, D: 2})
    targets = set()
    for key in spread_keys(400):
        order = ring_order(fleet, key)
        if order[0] == "a":
            nearest = next(name for name in order if name in "bc")
            assert outcome(fleet, key) == (nearest, Reason.OVERFLOW)
            targets.add(nearest)
    assert targets == {"b", "c"}


def test_overflow_does_not_move_the_home() -> None:
    fleet = busy({A: THRESHOLD, B: 0, C: 0})
    key = key_homed_at(fleet, "a")
    strategy = PrefixAware(THRESHOLD)
    for _ in range(3):
        assert take(strategy, query(key), fleet)
    fleet.by_name[A].in_flight.count = THRESHOLD - 1
    assert strategy.choose(query(key), fleet) == Decision(fleet.by_name[A], Reason.AFFINITY, A)


def test_overflowing_keys_of_one_home_spread_over_all_others_and_two_routers_agree() -> None:
    names = numbered(8)
    one, other = (busy(dict.fromkeys(names, 0), DEFAULT_VIRTUAL_NODES) for _ in range(2))
    for fleet in (one, other):
        fleet.by_name[names[0]].in_flight.count = THRESHOLD
    targets: Counter[str] = Counter()
    keys = [key for key in spread_keys(8_000) if one.ring.owner(key) == names[0]]
    for key in keys:
        target, reason = outcome(one, key)
        assert reason is Reason.OVERFLOW
        assert outcome(other, key) == (target, reason)
        targets[target] += 1
    fair = len(keys) / 7
    assert len(targets) == 7
    assert max(targets.values()) < 2 * fair


def test_hundreds_of_backends_and_a_quarter_of_traffic_on_one_prefix_spreads_it() -> None:
    fleet = busy(dict.fromkeys(numbered(200), 0))
    strategy = PrefixAware(THRESHOLD)
    source = random.Random(5)
    hot = source.getrandbits(64)
    hot_home = fleet.ring.owner(hot)
    placed: Counter[str] = Counter()
    for _ in range(1_000):
        is_hot = source.random() < 0.25
        decision = take(strategy, query(hot if is_hot else source.getrandbits(64)), fleet)
        assert decision is not None
        if is_hot:
            placed[decision.member.name] += 1
    assert placed[str(hot_home)] >= THRESHOLD
    elsewhere = placed.total() - placed[str(hot_home)]
    del placed[str(hot_home)]
    assert elsewhere > 150
    assert len(placed) > 100
    assert max(placed.values()) <= 5


# Step 4: staying although full.


@pytest.mark.parametrize(
    ("home", "others"),
    [
        (THRESHOLD, [THRESHOLD, THRESHOLD, THRESHOLD]),
        (THRESHOLD, [9, 9, 9]),
        (THRESHOLD, [9, 9, 0]),
        (2 * THRESHOLD, [THRESHOLD, THRESHOLD, THRESHOLD]),
    ],
    ids=["all full", "all nearly full", "one lucky", "twice the others, not more"],
)
def test_full_home_keeps_the_request_when_nobody_is_clearly_less_loaded(home: int, others: list[int]) -> None:
    fleet = busy({A: home, **dict(zip((B, C, D), others, strict=True))})
    assert choose(fleet, key_homed_at(fleet, "a")) == Decision(fleet.by_name[A], Reason.SATURATED, A)


def test_a_prefix_that_everybody_shares_is_bounded_even_when_the_whole_fleet_is_full() -> None:
    fleet = busy({A: 0, B: THRESHOLD, C: THRESHOLD, D: THRESHOLD})
    key, strategy = key_homed_at(fleet, "a"), PrefixAware(THRESHOLD)
    for _ in range(40 * THRESHOLD):
        take(strategy, query(key), fleet)
    counts = {member.name: member.in_flight.count for member in fleet.members}
    others = sum(counts.values()) - counts[A]
    assert counts[A] <= 2 * others / 3 + 2
    assert max(counts.values()) == counts[A]


def test_only_backend_stays_home_when_full() -> None:
    fleet = busy({A: 99})
    assert outcome(fleet, 1) == ("a", Reason.SATURATED)


@pytest.mark.parametrize("count", [3, 7, 64])
@pytest.mark.parametrize("mean", [5, 7, 10, 13])
def test_even_load_with_random_counts_keeps_affinity(count: int, mean: int) -> None:
    names = numbered(count)
    fleet = busy(dict.fromkeys(names, 0))
    source = random.Random(count * 100 + mean)
    keys = spread_keys(1_500)
    stayed = 0
    for key in keys:
        for name in names:
            fleet.by_name[name].in_flight.count = poisson(source, mean)
        decision = choose(fleet, key)
        assert decision is not None
        stayed += decision.reason in (Reason.AFFINITY, Reason.SATURATED)
    assert stayed >= 0.95 * len(keys)


# Step 5: no key.


def test_request_without_a_key_goes_to_the_least_loaded() -> None:
    fleet = busy({A: 2, B: 1, C: 3})
    assert choose(fleet, None) == Decision(fleet.by_name[B], Reason.KEYLESS)


def test_ties_without_a_key_are_told_apart_by_the_draw() -> None:
    fleet = busy({A: 0, B: 5, C: 0, D: 0})
    targets = Counter(outcome(fleet, None, draw=draw)[0] for draw in range(300))
    assert targets == {"a": 100, "c": 100, "d": 100}


def test_burst_without_keys_spreads_when_each_lease_is_taken_before_the_next_decision() -> None:
    fleet = busy(dict.fromkeys(numbered(7), 0))
    strategy, source = PrefixAware(THRESHOLD), random.Random(1)
    for _ in range(70):
        assert take(strategy, query(draw=source.getrandbits(64)), fleet)
    assert {found.in_flight.count for found in fleet.members} == {10}


def test_burst_of_one_prefix_fills_home_first_and_then_spreads() -> None:
    fleet = busy(dict.fromkeys(numbered(7), 0))
    strategy = PrefixAware(THRESHOLD)
    reasons = Counter(
        decision.reason for _ in range(24) if (decision := take(strategy, query(12345), fleet)) is not None
    )
    assert reasons == {Reason.AFFINITY: 10, Reason.OVERFLOW: 14}
    assert sorted(found.in_flight.count for found in fleet.members)[:-1] == [2, 2, 2, 2, 3, 3]


# Home unusable: failover.

UNUSABLE = {
    "down": {"state": BackendState.DOWN},
    "ejected": {"state": BackendState.EJECTED},
    "draining": {"draining": True},
    "half-open slot taken": {"state": BackendState.HALF_OPEN, "in_flight": 1, "trials": 1},
}


@pytest.mark.parametrize("condition", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_home_fails_over_to_the_next_on_the_ring(condition: dict[str, object]) -> None:
    fleet = fleet_of([member("a", **condition), member("b", 1), member("c"), member("d", 2)])  # type: ignore[arg-type]
    for key in [key for key in spread_keys(100) if fleet.ring.owner(key) == "a"]:
        decision = choose(fleet, key)
        assert decision == Decision(fleet.by_name[ring_order(fleet, key)[1]], Reason.FAILOVER, A)  # type: ignore[index]


def test_home_that_failed_on_this_request_is_not_tried_again() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    key = key_homed_at(fleet, "a")
    first, second, third = ring_order(fleet, key)
    assert outcome(fleet, key, failed=[first]) == (second, Reason.FAILOVER)
    assert outcome(fleet, key, failed=[first, second]) == (third, Reason.FAILOVER)
    assert choose(fleet, key, failed=[first, second, third]) is None


def test_half_open_home_gets_its_one_request() -> None:
    fleet = fleet_of([member("a", state=BackendState.HALF_OPEN), member("b"), member("c")])
    strategy, key = PrefixAware(THRESHOLD), key_homed_at(fleet, "a")
    reasons = [decision.reason for _ in range(2) if (decision := take(strategy, query(key), fleet))]
    assert reasons == [Reason.AFFINITY, Reason.FAILOVER]


def test_ejected_home_that_is_the_last_resort_of_its_adapter_keeps_it() -> None:
    fleet = fleet_of(
        [
            member("a", models=["m"]),
            member("b", models=["m", "n"], state=BackendState.EJECTED, last_resort=True),
        ]
    )
    assert outcome(fleet, 1, model="n") == ("b", Reason.AFFINITY)


def test_keys_of_a_dead_home_spread_over_all_others_and_nobody_elses_keys_move() -> None:
    names = numbered(7)
    healthy = fleet_of((member(name) for name in names), DEFAULT_VIRTUAL_NODES)
    broken = fleet_of(
        (
            member(name, state=BackendState.DOWN if name == names[2] else BackendState.HEALTHY)
            for name in names
        ),
        DEFAULT_VIRTUAL_NODES,
    )
    after: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    keys = spread_keys(7_000)
    for key in keys:
        before, now = outcome(healthy, key)[0], outcome(broken, key)[0]
        after[now] += 1
        if before == names[2]:
            moved[now] += 1
        else:
            assert now == before
    assert set(moved) == set(names) - {names[2]}
    assert max(moved.values()) < 2 * moved.total() / 6
    assert max(after.values()) < 2 * len(keys) / 7


def test_full_stand_in_overflows_like_a_home() -> None:
    fleet = fleet_of([member("a", state=BackendState.DOWN), member("b"), member("c"), member("d")])
    key = key_homed_at(fleet, "a")
    stand_in = ring_order(fleet, key)[1]
    fleet.by_name[stand_in].in_flight.count = THRESHOLD  # type: ignore[index]
    target, reason = outcome(fleet, key)
    assert reason is Reason.OVERFLOW
    assert target == ring_order(fleet, key)[2]


def test_full_stand_in_keeps_the_request_when_nobody_is_clearly_less_loaded() -> None:
    fleet = fleet_of(
        [member("a", state=BackendState.DOWN), member("b", 12), member("c", 12), member("d", 12)]
    )
    key = key_homed_at(fleet, "a")
    assert outcome(fleet, key) == (ring_order(fleet, key)[1], Reason.FAILOVER)


# Back-pressure.


def test_home_that_refused_sends_the_request_to_the_least_loaded_even_past_the_threshold() -> None:
    fleet = busy({A: 2, B: 30, C: 20, D: 30})
    key = key_homed_at(fleet, "a")
    assert choose(fleet, key, refused="a") == Decision(fleet.by_name[C], Reason.OVERFLOW, A)
    assert outcome(fleet, key, refused="ac")[0] in "bd"
    assert choose(fleet, key, refused="abcd") is None


def test_backend_that_refused_is_no_target_of_an_overflow() -> None:
    fleet = busy({A: THRESHOLD, B: 0, C: 1, D: 1})
    assert outcome(fleet, key_homed_at(fleet, "a"), refused="b")[0] in "cd"


def test_stand_in_that_refused_passes_the_request_to_the_least_loaded() -> None:
    fleet = busy({A: 0, B: 0, C: 0, D: 0})
    key = key_homed_at(fleet, "a")
    first, second, *rest = ring_order(fleet, key)
    target, reason = outcome(fleet, key, failed=[first], refused=[second])
    assert target in rest
    assert reason is Reason.OVERFLOW


def test_without_a_key_backends_that_failed_or_refused_are_left_out() -> None:
    fleet = busy({A: 0, B: 0, C: 9})
    assert outcome(fleet, None, failed="a", refused="b") == ("c", Reason.KEYLESS)
    assert choose(fleet, None, failed="ac", refused="b") is None


# Models.


def test_home_is_the_first_on_the_ring_that_serves_the_model() -> None:
    fleet = fleet_of([member("a", models=["m"]), member("b", models=["n"]), member("c", models=["m", "n"])])
    for key in spread_keys(100):
        order = ring_order(fleet, key)
        for model, serving in (("m", "ac"), ("n", "bc")):
            home = next(name for name in order if name in serving)
            decision = choose(fleet, key, model=model)
            assert decision == Decision(fleet.by_name[home], Reason.AFFINITY, home)  # type: ignore[index,arg-type]


def test_overflow_and_failover_stay_among_the_backends_that_serve_the_model() -> None:
    fleet = fleet_of([member("a", 10, models=["m"]), member("b", models=["n"]), member("c", 2, models=["m"])])
    key = key_homed_at(fleet, "a")
    assert outcome(fleet, key, model="m") == ("c", Reason.OVERFLOW)
    assert outcome(fleet, key, model="m", failed="a") == ("c", Reason.FAILOVER)
    assert outcome(fleet, None, model="m") == ("c", Reason.KEYLESS)


def test_adapter_that_nobody_serves_has_no_backend() -> None:
    fleet = fleet_of([member("a", models=["m"]), member("b", models=["m"])])
    assert choose(fleet, 1, model="adapter") is None
    assert choose(fleet, None, model="adapter") is None


# Nobody.


def test_empty_fleet_has_no_backend() -> None:
    assert choose(fleet_of([]), 1) is None
    assert choose(fleet_of([]), None) is None


def test_fleet_that_is_all_down_has_no_backend() -> None:
    fleet = fleet_of(member(name, state=BackendState.DOWN) for name in "abc")
    assert choose(fleet, 1) is None
    assert choose(fleet, None) is None


def test_threshold_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="concurrency_threshold must be at least 1, not 0"):
        PrefixAware(0)


def test_threshold_of_one_leaves_a_home_with_one_request_for_an_idle_fleet() -> None:
    fleet = busy({A: 1, B: 0, C: 0})
    decision = PrefixAware(1).choose(query(key_homed_at(fleet, "a")), fleet)
    assert decision is not None
    assert decision.reason is Reason.OVERFLOW


def poisson(source: random.Random, mean: float) -> int:
    """A Poisson count: what independent arrivals leave in flight."""
    floor, product, count = math.exp(-mean), source.random(), 0
    while product > floor:
        product *= source.random()
        count += 1
    return count


# A backend at its limit cannot have the request, which is more than being busy.


def test_home_at_its_limit_overflows_to_the_least_loaded_even_when_that_is_hardly_less_busy() -> None:
    fleet = fleet_of([member("a", 5, limit=5), member("b", 4), member("c", 3)])
    assert outcome(fleet, key_homed_at(fleet, "a")) == ("c", Reason.OVERFLOW)


def test_home_at_its_limit_overflows_past_the_threshold_of_the_others() -> None:
    fleet = fleet_of([member("a", 5, limit=5), member("b", THRESHOLD + 1)])
    assert outcome(fleet, key_homed_at(fleet, "a")) == ("b", Reason.OVERFLOW)


def test_overflow_never_goes_past_a_limit() -> None:
    fleet = fleet_of([member("a", 5, limit=5), member("b", 1, limit=1), member("c", 4)])
    assert outcome(fleet, key_homed_at(fleet, "a")) == ("c", Reason.OVERFLOW)


def test_a_full_stand_in_is_left_like_a_full_home() -> None:
    fleet = fleet_of(
        [member("a", state=BackendState.DOWN), *(member(name, 2, limit=2) for name in "bcd"), member("e", 9)]
    )
    assert outcome(fleet, key_homed_at(fleet, "a")) == ("e", Reason.OVERFLOW)


def test_nobody_is_chosen_when_all_are_at_their_limits() -> None:
    fleet = fleet_of([member("a", 5, limit=5), member("b", 1, limit=1)])
    assert choose(fleet, key_homed_at(fleet, "a")) is None
    assert choose(fleet, None) is None
