from __future__ import annotations

import pytest

from prefix_router.routing.fleet import BackendName, BackendState, InFlight
from tests.support.fleets import fleet_of, member, spread_keys


@pytest.mark.parametrize(
    ("state", "in_flight", "admits"),
    [
        (BackendState.STARTING, 0, True),
        (BackendState.STARTING, 9, True),
        (BackendState.HEALTHY, 0, True),
        (BackendState.HEALTHY, 9, True),
        (BackendState.EJECTED, 0, False),
        (BackendState.DOWN, 0, False),
        (BackendState.HALF_OPEN, 0, True),
        (BackendState.HALF_OPEN, 1, False),
    ],
)
def test_state_says_whether_one_more_request_may_go_there(
    state: BackendState, in_flight: int, admits: bool
) -> None:
    assert member("a", in_flight, state=state).admits() is admits


def test_half_open_backend_takes_one_request_at_a_time() -> None:
    probed = member("a", state=BackendState.HALF_OPEN)
    probed.in_flight.count += 1
    assert not probed.admits()
    probed.in_flight.count -= 1
    assert probed.admits()


@pytest.mark.parametrize("state", BackendState)
def test_draining_backend_admits_nothing_in_any_state(state: BackendState) -> None:
    assert not member("a", state=state, draining=True).admits()


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
