from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from prefix_router.proxy.fleet_store import FleetStore, ServedModel
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthEvent, HealthPolicy
from prefix_router.workers.messages import Evidence, FleetView, MemberView
from prefix_router.workers.replica import FleetReplica
from prefix_router.workers.shared_counts import SharedCounts
from tests.support.events import Recorder
from tests.support.fleets import VIRTUAL_NODES, spread_keys

A, B, C = BackendName("a"), BackendName("b"), BackendName("c")


def seen(
    name: BackendName,
    state: BackendState = BackendState.HEALTHY,
    *,
    slot: int = 0,
    weight: int = 1,
    served: tuple[ServedModel, ...] | None = None,
    declared: frozenset[str] | None = None,
    draining: bool = False,
) -> MemberView:
    backend = Backend(name, f"http://{name}", weight, declared)
    return MemberView(backend, served, state, draining, slot)


def view(*members: MemberView, version: int = 1, virtual_nodes: int = VIRTUAL_NODES) -> FleetView:
    return FleetView(version, virtual_nodes, members)


class World:
    """A replica, and what it has reported."""

    def __init__(self, start: FleetView) -> None:
        self.counts = SharedCounts.create(workers=2, capacity=8)
        self.reported: list[tuple[Evidence, bool]] = []
        self.replica = FleetReplica(start, self.counts, 1, lambda *told: self.reported.append(told))

    def take_over(self, changed: FleetView) -> None:
        self.replica.put_in_place(changed, self.replica.ring_of(changed))


@pytest.fixture
def world() -> Iterator[World]:
    made = World(view(seen(A, slot=0), seen(B, BackendState.DOWN, slot=1)))
    yield made
    made.counts.close()


def test_a_replica_decides_on_states_drains_and_models_as_published(world: World) -> None:
    model = ServedModel("m", b'{"id":"m"}')
    world.take_over(view(seen(A, slot=0, served=(model,)), seen(B, slot=1, draining=True)))
    first, second = world.replica.fleet.members
    assert (first.models, second.models) == (frozenset({"m"}), None)
    assert (first.draining, second.draining) == (False, True)
    assert world.replica.served_models() == {A: (model,), B: None}
    assert [one.name for one in world.replica.fleet.routable("m")] == [A]


def test_a_backend_that_is_down_lists_no_models(world: World) -> None:
    assert world.replica.served_models() == {A: None}


def test_declared_models_win_over_listed_ones(world: World) -> None:
    world.take_over(view(seen(A, served=(ServedModel("x", b"{}"),), declared=frozenset({"m"}))))
    assert world.replica.fleet.members[0].models == frozenset({"m"})


def test_leases_are_counted_where_all_workers_see_them(world: World) -> None:
    world.replica.fleet.by_name[B].in_flight.take()
    assert world.counts.in_flight(1, 2).count == 1
    world.take_over(view(seen(B, slot=1), version=2))
    assert world.replica.fleet.by_name[B].in_flight.count == 1


def test_same_fleet_same_home_as_in_the_store_that_published_it() -> None:
    backends = [Backend(name, f"http://{name}", weight) for name, weight in ((A, 1), (B, 3), (C, 1))]
    store = FleetStore(
        backends, virtual_nodes=VIRTUAL_NODES, policy=HealthPolicy(), observer=Recorder(), clock=lambda: 0
    )
    started = World(view(seen(A), seen(B, weight=3), seen(C)))
    changed = World(view(seen(A), seen(BackendName("gone"), weight=2)))
    changed.take_over(view(seen(A), seen(B, weight=3), seen(C)))
    for key in spread_keys(500):
        home = store.fleet.ring.owner(key)
        assert started.replica.fleet.ring.owner(key) == changed.replica.fleet.ring.owner(key) == home
    started.counts.close()
    changed.counts.close()


def test_only_another_membership_or_number_of_points_needs_another_ring(world: World) -> None:
    assert not world.replica.needs_ring(view(seen(B, slot=1), seen(A, BackendState.EJECTED)))
    assert world.replica.needs_ring(view(seen(A)))
    assert world.replica.needs_ring(view(seen(A), seen(B, weight=2)))
    other = view(seen(A), seen(B), virtual_nodes=VIRTUAL_NODES * 2)
    assert world.replica.needs_ring(other)
    assert world.replica.ring_of(other).virtual_nodes == VIRTUAL_NODES * 2


def test_the_last_backend_that_answers_at_all_is_used(world: World) -> None:
    world.take_over(view(seen(A, BackendState.EJECTED), seen(B, BackendState.DOWN)))
    assert world.replica.fleet.by_name[A].admits()


@pytest.mark.parametrize(
    ("name", "event", "urgent"),
    [
        (A, HealthEvent.REQUEST_OK, False),
        (A, HealthEvent.REQUEST_BAD, True),
        (A, HealthEvent.UNREACHABLE, True),
        (B, HealthEvent.REQUEST_OK, True),
    ],
)
def test_evidence_is_handed_on_and_urgent_where_it_may_change_a_state(
    world: World, name: BackendName, event: HealthEvent, urgent: bool
) -> None:
    backend = world.replica.fleet.by_name[name].backend
    world.replica.report(backend, event, "why", 7)
    assert world.reported == [(Evidence(name, f"http://{name}", event, "why", 7), urgent)]
    assert world.replica.fleet.by_name[A].state is BackendState.HEALTHY


def test_evidence_about_who_has_left_is_dropped(world: World) -> None:
    world.replica.report(Backend(C, "http://c"), HealthEvent.UNREACHABLE)
    world.replica.report(Backend(A, "http://moved"), HealthEvent.UNREACHABLE)
    assert world.reported == []


def test_a_backend_keeps_its_counter_for_as_long_as_it_is_the_same_one(world: World) -> None:
    before = [member.in_flight for member in world.replica.fleet.members]
    world.take_over(view(seen(A, BackendState.EJECTED, slot=0), seen(B, slot=1)))
    after = [member.in_flight for member in world.replica.fleet.members]
    assert all(counter is other for counter, other in zip(before, after, strict=True))
    moved = structs.replace(seen(A, slot=0), backend=Backend(A, "http://elsewhere"))
    world.take_over(view(moved, seen(B, slot=2)))
    changed = [member.in_flight for member in world.replica.fleet.members]
    assert not any(counter is other for counter, other in zip(after, changed, strict=True))
