from __future__ import annotations

import pytest

from prefix_router.routing.fleet import BackendName, BackendState, InFlight, Member, with_last_resorts
from tests.support.fleets import fleet_of, member, spread_keys


@pytest.mark.parametrize(
    ("others", "admits"),
    [
        ([BackendState.HEALTHY], False),
        ([BackendState.STARTING], False),
        ([BackendState.HALF_OPEN], False),
        ([BackendState.EJECTED], True),
        ([BackendState.DOWN], True),
        ([BackendState.WARMING], True),
        ([], True),
    ],
)
def test_a_warming_backend_takes_traffic_when_nobody_better_is_left(
    others: list[BackendState], admits: bool
) -> None:
    members = [member("a", state=BackendState.WARMING)]
    members += [member(f"b{at}", state=state) for at, state in enumerate(others)]
    assert with_last_resorts(members)[0].admits() is admits


@pytest.mark.parametrize("state", [BackendState.STARTING, BackendState.HEALTHY])
@pytest.mark.parametrize("in_flight", [0, 1, 900])
def test_backend_in_service_admits_however_busy_it_is(state: BackendState, in_flight: int) -> None:
    assert member("a", in_flight, state=state).admits()


@pytest.mark.parametrize("last_resort", [False, True])
def test_ejected_backend_admits_only_as_the_last_resort(last_resort: bool) -> None:
    assert member("a", state=BackendState.EJECTED, last_resort=last_resort).admits() is last_resort


@pytest.mark.parametrize("last_resort", [False, True])
def test_backend_that_is_down_never_admits(last_resort: bool) -> None:
    assert not member("a", state=BackendState.DOWN, last_resort=last_resort).admits()


def test_half_open_backend_admits_one_unproven_request_at_a_time_whatever_else_is_in_flight() -> None:
    recovering = member("a", 5, state=BackendState.HALF_OPEN)
    assert recovering.admits()
    recovering.in_flight.trials += 1
    assert not recovering.admits()
    recovering.in_flight.trials -= 1
    assert recovering.admits()


def test_half_open_backend_admits_any_number_as_the_last_resort() -> None:
    assert member("a", 5, state=BackendState.HALF_OPEN, trials=5, last_resort=True).admits()


@pytest.mark.parametrize("state", BackendState)
def test_draining_backend_admits_nothing_in_any_state(state: BackendState) -> None:
    assert not member("a", state=state, draining=True, last_resort=True).admits()


@pytest.mark.parametrize(
    ("models", "model", "serves"),
    [
        (None, "m", True),
        (None, None, True),
        (("m", "adapter"), "adapter", True),
        (("m",), None, True),
        (("m",), "other", False),
        ((), "m", False),
    ],
)
def test_backend_serves_what_it_lists_and_anything_while_its_list_is_unknown(
    models: tuple[str, ...] | None, model: str | None, serves: bool
) -> None:
    assert member("a", models=models).serves(model) is serves


def test_routable_members_serve_the_model_admit_and_are_not_excluded_in_configuration_order() -> None:
    fleet = fleet_of(
        [
            member("z", models=["m"]),
            member("y", models=["other"]),
            member("x", models=["m"], state=BackendState.DOWN),
            member("w", models=["m"], draining=True),
            member("c"),
            member("b", models=["m"]),
            member("a", models=["m", "other"]),
        ]
    )
    routable = fleet.routable("m", frozenset([BackendName("b")]))
    assert [found.name for found in routable] == ["z", "c", "a"]
    assert [found.name for found in fleet.routable(None)] == ["z", "y", "c", "b", "a"]


def test_home_is_the_first_on_the_ring_that_serves_the_model_whatever_its_state() -> None:
    fleet = fleet_of([member("a", models=["m"], state=BackendState.DOWN), member("b", models=["m", "n"])])
    for key in spread_keys(50):
        for model in ("m", "n", None):
            assert fleet.home(key, model) is next(fleet.successors(key, model))
        assert fleet.home(key, "other") is None
    assert fleet_of([]).home(1, None) is None


def test_what_only_the_snapshot_decides_is_decided_once_for_each_model() -> None:
    fleet = fleet_of(
        [
            member("a", models=["m"]),
            member("b", models=["m", "n"]),
            member("c", models=["m", "n"], state=BackendState.DOWN),
        ]
    )
    assert fleet.routable("m") is fleet.routable("m") is fleet.routable(None)
    assert [found.name for found in fleet.routable("n")] == ["b"]
    assert fleet.routable("n") is fleet.routable("n")


def test_models_that_nobody_lists_are_not_remembered_one_by_one() -> None:
    fleet = fleet_of([member("a", models=["m"]), member("b")])
    for number in range(1000):
        assert [found.name for found in fleet.routable(f"adapter {number}")] == ["b"]
    assert [found.name for found in fleet.routable("unknown_model")] == ["b"]
    assert [found.name for found in fleet.routable("m")] == ["a", "b"]
    assert [found.name for found in fleet.routable(None)] == ["a", "b"]
    assert len(fleet._serving) == 3


@pytest.mark.parametrize(
    ("doubtful", "settled"),
    [
        (member("a"), True),
        (member("a", limit=1), False),
        (member("a", state=BackendState.HALF_OPEN), False),
        (member("a", state=BackendState.HALF_OPEN, last_resort=True), True),
        (member("a", state=BackendState.HALF_OPEN, draining=True), True),
        (member("a", state=BackendState.EJECTED), True),
        (member("a", state=BackendState.DOWN, limit=1), True),
    ],
)
def test_counts_have_a_say_with_limits_and_for_half_open_backends(doubtful: Member, settled: bool) -> None:
    assert doubtful.settled() is settled
    fleet = fleet_of([doubtful, member("b")])
    answers = [doubtful.admits()]
    first = [found.name for found in fleet.routable("m")]
    doubtful.in_flight.count = doubtful.in_flight.trials = 1
    answers.append(doubtful.admits())
    second = [found.name for found in fleet.routable("m")]
    assert ["a" in first, "a" in second] == answers
    assert (answers[0] == answers[1]) is settled


def test_members_are_found_by_name() -> None:
    fleet = fleet_of([member("a"), member("b")])
    assert fleet.by_name[BackendName("b")] is fleet.members[1]
    assert set(fleet.by_name) == {"a", "b"}


def test_walk_meets_serving_members_in_ring_order_whatever_their_state() -> None:
    fleet = fleet_of(
        [
            member("a", models=["m"], state=BackendState.DOWN),
            member("b", models=["other"]),
            member("c", draining=True),
            member("d", models=["m"]),
        ]
    )
    for key in spread_keys(50):
        ring_order = [name for name in fleet.ring.successors(key) if name != "b"]
        assert [found.name for found in fleet.successors(key, "m")] == ring_order
        assert len(list(fleet.successors(key, None))) == 4


@pytest.mark.parametrize(
    ("lists", "model", "certain"),
    [
        ([["m"], ["n"]], "other", True),
        ([["m"], ["n"]], "n", False),
        ([["m"], None], "other", False),
        ([["m"], ["n"]], None, False),
        ([], "m", False),
    ],
)
def test_model_is_unknown_only_when_every_list_is_known_and_none_has_it(
    lists: list[list[str] | None], model: str | None, certain: bool
) -> None:
    fleet = fleet_of(member(f"backend-{index}", models=models) for index, models in enumerate(lists))
    assert fleet.knows_no(model) is certain


def test_in_flight_count_outlives_the_snapshot_that_it_was_seen_in() -> None:
    before = member("a", 3)
    after = fleet_of([before])
    before.in_flight.count += 1
    assert after.by_name[BackendName("a")].in_flight.count == 4
    assert repr(before.in_flight) == "InFlight(4)"
    assert InFlight().count == 0


def last_resorts(*members: Member) -> list[str]:
    return [marked.name for marked in with_last_resorts(members) if marked.last_resort]


HEALTHY, STARTING, EJECTED, DOWN, HALF_OPEN = (
    BackendState.HEALTHY,
    BackendState.STARTING,
    BackendState.EJECTED,
    BackendState.DOWN,
    BackendState.HALF_OPEN,
)


@pytest.mark.parametrize("better", [HEALTHY, STARTING])
def test_nobody_is_the_last_resort_while_another_is_in_service(better: BackendState) -> None:
    assert (
        last_resorts(member("a", state=better), member("b", state=EJECTED), member("c", state=HALF_OPEN))
        == []
    )


def test_backends_in_the_best_state_that_is_left_are_the_last_resort() -> None:
    assert last_resorts(member("a", state=EJECTED), member("b", state=DOWN), member("c", state=EJECTED)) == [
        "a",
        "c",
    ]
    assert last_resorts(member("a", state=EJECTED), member("b", state=HALF_OPEN)) == ["b"]


def test_backend_that_is_down_is_no_resort_and_stands_in_for_nobody() -> None:
    assert last_resorts(member("a", state=DOWN)) == []
    assert last_resorts(member("a", state=EJECTED), member("b", state=DOWN)) == ["a"]


def test_draining_backend_stands_in_for_nobody() -> None:
    assert last_resorts(member("a", draining=True), member("b", state=EJECTED)) == ["b"]


def test_backend_that_alone_serves_an_adapter_is_its_last_resort() -> None:
    base, adapter = member("a", models=["m"]), member("b", models=["m", "adapter"], state=EJECTED)
    assert last_resorts(base, adapter) == ["b"]
    assert last_resorts(member("a", models=["m", "adapter", "n"]), adapter) == []


@pytest.mark.parametrize(("models", "of_the_other"), [(None, ["m"]), (["m"], None)])
def test_backend_of_unknown_models_may_stand_in_and_be_stood_in_for(
    models: list[str] | None, of_the_other: list[str] | None
) -> None:
    assert last_resorts(member("a", models=of_the_other), member("b", models=models, state=EJECTED)) == []


def test_marking_last_resorts_leaves_everything_else_as_it_was() -> None:
    members = [member("a", 3), member("b", state=EJECTED)]
    marked = with_last_resorts(members)
    assert marked[0] is members[0]
    assert marked[1].in_flight is members[1].in_flight


# A limit of its own.


def test_backend_at_its_limit_is_full_but_in_service() -> None:
    limited = member("a", 2, limit=3)
    assert (limited.full(), limited.admits(), limited.in_service()) == (False, True, True)
    limited.in_flight.take()
    assert (limited.full(), limited.admits(), limited.in_service()) == (True, False, True)
    limited.in_flight.take()  # as after a reload that lowers the limit
    assert limited.full()


def test_backend_without_a_limit_is_never_full() -> None:
    assert not member("a", 10**6).full()


@pytest.mark.parametrize("state", BackendState)
@pytest.mark.parametrize("trials", [0, 1])
@pytest.mark.parametrize("last_resort", [False, True])
@pytest.mark.parametrize("draining", [False, True])
def test_it_admits_exactly_when_it_is_in_service_and_not_full(
    state: BackendState, trials: int, last_resort: bool, draining: bool
) -> None:
    for limit in (None, 1, 2):
        it = member(
            "a", 1, state=state, trials=trials, last_resort=last_resort, draining=draining, limit=limit
        )
        assert it.admits() == (it.in_service() and not it.full())


def test_fleet_is_in_service_while_somebody_is_even_if_all_are_full() -> None:
    full = member("a", 1, limit=1)
    assert fleet_of([full, member("b", state=BackendState.DOWN)]).in_service()
    assert not fleet_of([member("a", draining=True)]).in_service()


def test_a_trial_lasts_until_it_is_ended() -> None:
    one = member("a", state=BackendState.HALF_OPEN)
    one.in_flight.begin_trial()
    assert not one.in_service()
    one.in_flight.end_trial()
    assert one.in_service()
