from __future__ import annotations

from prefix_router.observe.events import BackendChanged
from prefix_router.proxy.fleet_store import FleetStore, ServedModel
from prefix_router.proxy.lease import Lease
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthEvent, HealthPolicy
from tests.support.events import Recorder

A, B, C = (Backend(BackendName(name), f"http://{name}:1") for name in "abc")


def store_of(*backends: Backend, observer: Recorder | None = None) -> FleetStore:
    return FleetStore(
        backends,
        virtual_nodes=8,
        policy=HealthPolicy(probe_failures=1, request_failures=1, max_ejected_fraction=0.5),
        observer=observer or Recorder(),
        clock=lambda: 1.0,
    )


def states(store: FleetStore) -> list[BackendState]:
    return [member.state for member in store.fleet.members]


def test_evidence_makes_a_new_snapshot_and_leaves_the_old_one_alone() -> None:
    store = store_of(A, B)
    before = store.fleet
    store.report(A, HealthEvent.UNREACHABLE)
    assert states(store) == [BackendState.DOWN, BackendState.STARTING]
    assert before.members[0].state is BackendState.STARTING
    assert store.fleet.ring is before.ring


def test_evidence_that_changes_no_state_makes_no_snapshot() -> None:
    store = store_of(A)
    store.report(A, HealthEvent.PROBE_OK)
    before = store.fleet
    store.report(A, HealthEvent.PROBE_OK)
    store.report(A, HealthEvent.REQUEST_OK)
    assert store.fleet is before


def test_each_change_of_state_is_told_once_with_its_cause() -> None:
    observer = Recorder()
    store = store_of(A, observer=observer)
    store.report(A, HealthEvent.PROBE_OK, "probe")
    store.report(A, HealthEvent.PROBE_OK, "probe")
    store.report(A, HealthEvent.UNREACHABLE, "refused")
    assert observer.changed == [
        BackendChanged(A.name, BackendState.STARTING, BackendState.HEALTHY, "probe"),
        BackendChanged(A.name, BackendState.HEALTHY, BackendState.DOWN, "refused"),
    ]


def test_only_so_many_backends_are_ejected_and_the_next_one_follows_when_there_is_room() -> None:
    store = store_of(A, B, C)
    store.report(A, HealthEvent.REQUEST_BAD)
    store.report(B, HealthEvent.REQUEST_BAD)
    assert states(store) == [BackendState.EJECTED, BackendState.STARTING, BackendState.STARTING]
    store.report(A, HealthEvent.REQUEST_OK)
    store.report(B, HealthEvent.REQUEST_BAD)
    assert states(store) == [BackendState.HALF_OPEN, BackendState.STARTING, BackendState.STARTING]
    store.report(A, HealthEvent.REQUEST_OK)
    store.report(A, HealthEvent.REQUEST_OK)
    store.report(B, HealthEvent.REQUEST_BAD)
    assert states(store) == [BackendState.HEALTHY, BackendState.EJECTED, BackendState.STARTING]


def test_unreachable_backends_are_taken_out_however_few_are_left() -> None:
    store = store_of(A, B)
    store.report(A, HealthEvent.UNREACHABLE)
    store.report(B, HealthEvent.UNREACHABLE)
    assert states(store) == [BackendState.DOWN, BackendState.DOWN]


def test_a_half_open_backend_that_fails_is_out_again_whatever_the_others_are() -> None:
    store = store_of(A, B)
    store.report(A, HealthEvent.UNREACHABLE)
    store.report(A, HealthEvent.PROBE_OK)
    store.report(B, HealthEvent.UNREACHABLE)
    store.report(A, HealthEvent.REQUEST_BAD)
    assert states(store) == [BackendState.EJECTED, BackendState.DOWN]


def test_a_backend_that_stays_keeps_all_that_is_known_of_it() -> None:
    store = store_of(A, B)
    store.report(A, HealthEvent.PROBE_OK)
    store.set_models(A, (ServedModel("m", b"{}"),))
    lease = Lease(store.fleet.by_name[A.name])
    store.replace_backends([C, Backend(A.name, A.url, weight=3)])
    member = store.fleet.by_name[A.name]
    assert [other.name for other in store.fleet.members] == ["c", "a"]
    assert (member.state, member.in_flight.count, member.models) == (
        BackendState.HEALTHY,
        1,
        frozenset({"m"}),
    )
    assert store.fleet.ring.weights == {"c": 1, "a": 3}
    lease.release()
    assert member.in_flight.count == 0


def test_a_backend_that_comes_back_under_its_name_never_gets_an_old_lease_back() -> None:
    store = store_of(A)
    lease = Lease(store.fleet.members[0])
    store.replace_backends([])
    store.replace_backends([Backend(A.name, "http://other:1")])
    lease.release()
    assert store.fleet.members[0].in_flight.count == 0


def test_evidence_about_who_has_left_is_dropped() -> None:
    store = store_of(A)
    store.replace_backends([Backend(A.name, "http://other:1")])
    store.report(A, HealthEvent.UNREACHABLE)
    store.set_models(A, (ServedModel("m", b"{}"),))
    store.report(B, HealthEvent.UNREACHABLE)
    assert states(store) == [BackendState.STARTING]
    assert store.fleet.members[0].models is None


def test_the_ring_is_rebuilt_only_for_names_and_weights() -> None:
    store = store_of(A, B)
    ring = store.fleet.ring
    store.replace_backends([B, A])
    assert store.fleet.ring is ring
    store.replace_backends([A])
    assert store.fleet.ring is not ring


def test_a_draining_backend_takes_nothing_new() -> None:
    store = store_of(A, B)
    assert store.set_draining(A.name, True)
    assert [member.name for member in store.fleet.routable(None)] == ["b"]
    assert store.set_draining(A.name, False)
    assert len(store.fleet.routable(None)) == 2
    assert not store.set_draining(BackendName("none"), True)


def test_models_are_listed_for_backends_that_take_traffic() -> None:
    store = store_of(A, B)
    store.set_models(A, (ServedModel("m", b"1"),))
    store.set_models(B, (ServedModel("n", b"2"),))
    store.report(A, HealthEvent.UNREACHABLE)
    assert dict(store.served_models()) == {"b": (ServedModel("n", b"2"),)}


def test_declared_models_win_over_listed_ones() -> None:
    declared = Backend(A.name, A.url, models=frozenset({"mine"}))
    store = store_of(declared)
    store.set_models(declared, (ServedModel("other", b"{}"),))
    assert store.fleet.members[0].models == frozenset({"mine"})


def test_one_prompt_that_goes_wrong_again_and_again_counts_once() -> None:
    store = FleetStore(
        [A, B],
        virtual_nodes=8,
        policy=HealthPolicy(request_failures=3),
        observer=Recorder(),
        clock=lambda: 1.0,
    )
    for _ in range(10):
        store.report(A, HealthEvent.REQUEST_BAD, suspect=7)
    assert states(store)[0] is BackendState.STARTING
    store.report(A, HealthEvent.REQUEST_BAD, suspect=8)
    store.report(A, HealthEvent.REQUEST_BAD, suspect=9)
    assert states(store)[0] is BackendState.EJECTED


def test_failures_without_a_key_all_count() -> None:
    store = store_of(A, B)
    store.report(A, HealthEvent.REQUEST_BAD)
    assert states(store)[0] is BackendState.EJECTED


def test_when_only_doubtful_backends_are_left_they_are_used() -> None:
    store = store_of(A, B)
    store.report(A, HealthEvent.REQUEST_BAD)
    assert [member.name for member in store.fleet.routable(None)] == ["b"]
    store.report(B, HealthEvent.UNREACHABLE)
    assert [member.name for member in store.fleet.routable(None)] == ["a"]
    store.set_models(A, (ServedModel("m", b"1"),))
    assert dict(store.served_models()) == {"a": (ServedModel("m", b"1"),)}
    store.report(B, HealthEvent.PROBE_OK)
    assert [member.name for member in store.fleet.routable(None)] == ["b"]


def test_replacing_says_who_stays() -> None:
    store = store_of(A, B)
    stay = store.replace_backends([Backend(A.name, A.url, weight=2), Backend(B.name, "http://other:1"), C])
    assert stay == {A.name}


def test_a_prepared_ring_is_the_one_that_a_change_makes_by_itself() -> None:
    store, other = store_of(A, B), store_of(A, B)
    ring = store.ring_of([A, C])
    assert store.fleet.ring.weights == {"a": 1, "b": 1}
    store.replace_backends([A, C], ring=ring)
    other.replace_backends([A, C])
    assert store.fleet.ring is ring
    assert (ring.weights, ring.point_count) == (other.fleet.ring.weights, other.fleet.ring.point_count)


def test_a_ring_may_get_another_number_of_points() -> None:
    store = store_of(A, B)
    store.replace_backends([A, B], ring=store.ring_of([A, B], 16))
    assert store.fleet.ring.virtual_nodes == 16
    store.replace_backends([A])
    assert (store.fleet.ring.virtual_nodes, store.fleet.ring.point_count) == (16, 16)


def test_a_new_health_policy_judges_what_comes_next() -> None:
    store = store_of(A, B)
    store.replace_backends([A, B], policy=HealthPolicy(probe_failures=2))
    store.report(A, HealthEvent.PROBE_BAD)
    assert states(store)[0] is BackendState.STARTING
    store.report(A, HealthEvent.PROBE_BAD)
    assert states(store)[0] is BackendState.EJECTED


def test_draining_lasts_while_name_and_url_stay() -> None:
    store = store_of(A, B)
    store.set_draining(A.name, True)
    store.replace_backends([Backend(A.name, A.url, weight=2), B])
    assert [member.draining for member in store.fleet.members] == [True, False]
    store.replace_backends([Backend(A.name, "http://other:1"), B])
    assert [member.draining for member in store.fleet.members] == [False, False]


def test_a_draining_backend_takes_no_part_in_how_many_may_be_ejected() -> None:
    store = store_of(A, B, C)
    store.set_draining(A.name, True)
    store.set_draining(B.name, True)
    store.report(C, HealthEvent.REQUEST_BAD)  # the only one left in service
    assert states(store)[2] is BackendState.STARTING
    store.report(A, HealthEvent.REQUEST_BAD)
    assert states(store)[0] is BackendState.EJECTED


def test_a_backend_that_flaps_never_gets_a_count_below_zero() -> None:
    store = store_of(A, B)
    leases = []
    for _ in range(50):
        leases.append(Lease(store.fleet.by_name[A.name]))
        store.replace_backends([B])
        store.replace_backends([A, B])
        leases.append(Lease(store.fleet.by_name[A.name]))
        if len(leases) > 3:
            leases.pop(0).release()
        assert store.fleet.by_name[A.name].in_flight.count == 1
    for lease in leases:
        lease.release()
    assert store.fleet.by_name[A.name].in_flight.count == 0


def test_who_joins_warming_counts_neither_way_for_ejections_and_lists_no_models() -> None:
    a, b, c = (Backend(BackendName(name), f"http://{name}") for name in "abc")
    store = store_of(a, b)
    store.replace_backends([a, b, c], joining=BackendState.WARMING)
    assert states(store) == [BackendState.STARTING, BackendState.STARTING, BackendState.WARMING]
    assert list(store.served_models()) == ["a", "b"]
    policy = HealthPolicy(probe_failures=1, max_ejected_fraction=0.5)
    store.replace_backends([a, b, c], policy=policy)
    for backend in (a, b):
        store.report(backend, HealthEvent.PROBE_BAD)
    assert states(store) == [BackendState.EJECTED, BackendState.STARTING, BackendState.WARMING]
