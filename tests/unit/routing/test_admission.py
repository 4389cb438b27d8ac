from __future__ import annotations

import pytest

from prefix_router.routing.admission import (
    MAX_RETRY_AFTER_SECONDS,
    Admission,
    AdmissionLimits,
    Needs,
    Room,
    Ticket,
    Verdict,
    room_for,
)
from prefix_router.routing.fleet import BackendName, BackendState, Fleet
from tests.support.fleets import backend_names, fleet_of, member

A, B = backend_names("a", "b")
ANY = Needs(None)


def line(max_in_flight: int = 0, max_waiting: int = 10, timeout_seconds: float = 30) -> Admission[Ticket]:
    return Admission(AdmissionLimits(max_in_flight, max_waiting, timeout_seconds))


def joined(admission: Admission[Ticket], *needs: Needs) -> list[Ticket]:
    tickets = [Ticket(each) for each in needs]
    for ticket in tickets:
        admission.join(ticket)
    return tickets


def served(admission: Admission[Ticket], fleet: Fleet, freed: BackendName | None = None) -> list[Ticket]:
    """Let waiters go until nobody can; each takes a place at the first backend that has one."""
    gone = []
    while (ticket := admission.next(fleet, freed)) is not None:
        admission.leave(ticket)
        next(one for one in ticket.needs.candidates(fleet) if not one.full()).in_flight.take()
        admission.in_flight += 1
        gone.append(ticket)
    return gone


def full_and_free(a: int = 1, b: int = 1) -> Fleet:
    """Backends of limit 1 that serve a model of their own name, with these many requests in flight."""
    return fleet_of([member("a", a, limit=1, models=["a"]), member("b", b, limit=1, models=["b"])])


# What a fleet has for a request.


@pytest.mark.parametrize(
    ("needs", "room"),
    [
        (Needs("free"), Room.FREE),
        (Needs("full"), Room.FULL),
        (Needs("down"), Room.NONE),
        (Needs("nowhere"), Room.NONE),
        (Needs(None), Room.FREE),
        (Needs("free", frozenset({B})), Room.NONE),
        (Needs(None, frozenset({B})), Room.FULL),
    ],
)
def test_room_is_with_backends_in_service_that_serve_the_model_and_are_not_excluded(
    needs: Needs, room: Room
) -> None:
    fleet = fleet_of(
        [
            member("a", 3, limit=3, models=["full"]),
            member("b", 2, limit=3, models=["free"]),
            member("c", models=["down"], state=BackendState.DOWN),
            member("d", draining=True),
        ]
    )
    assert room_for(needs, fleet) is room


def test_a_continuation_waits_for_its_own_backend_though_others_are_free() -> None:
    fleet = fleet_of([member("a", 1, limit=1), member("b")])
    assert room_for(Needs(None, only=A), fleet) is Room.FULL
    assert room_for(Needs(None, only=B), fleet) is Room.FREE


def test_a_continuation_belongs_to_its_backend_whatever_models_that_lists() -> None:
    fleet = fleet_of([member("a", 1, limit=1, models=["other"]), member("b")])
    assert room_for(Needs("m", only=A), fleet) is Room.FULL


@pytest.mark.parametrize("needs", [Needs(None, only=BackendName("gone")), Needs(None, frozenset({A}), A)])
def test_a_continuation_whose_backend_is_of_no_use_may_go_anywhere(needs: Needs) -> None:
    fleet = fleet_of([member("a", 1, limit=1), member("b")])
    assert room_for(needs, fleet) is Room.FREE


def test_a_continuation_does_not_wait_for_a_backend_out_of_service() -> None:
    fleet = fleet_of([member("a", state=BackendState.DOWN), member("b")])
    assert room_for(Needs(None, only=A), fleet) is Room.FREE


# The order in which a newcomer is judged.


def test_without_limits_everybody_who_can_be_routed_is_admitted() -> None:
    assert line().verdict(ANY, fleet_of([member("a", 10**6)])) is Verdict.ADMIT


def test_an_unroutable_request_is_told_so_even_when_the_line_is_full() -> None:
    admission = line(max_waiting=0)
    fleet = full_and_free()
    assert admission.verdict(Needs("other"), fleet) is Verdict.UNROUTABLE
    assert admission.verdict(Needs("a"), fleet) is Verdict.SHED


def test_it_waits_where_whoever_could_take_it_is_full() -> None:
    assert line().verdict(Needs("a"), full_and_free()) is Verdict.WAIT


def test_it_waits_behind_those_who_need_the_same_even_if_there_is_room() -> None:
    admission = line()
    joined(admission, Needs("a"))
    fleet = full_and_free(a=0, b=0)
    assert admission.verdict(Needs("a"), fleet) is Verdict.WAIT
    assert admission.verdict(Needs("b"), fleet) is Verdict.ADMIT


def test_the_limit_of_the_whole_router_counts_though_backends_have_room() -> None:
    admission = line(max_in_flight=2)
    fleet = fleet_of([member("a")])
    assert admission.verdict(ANY, fleet) is Verdict.ADMIT
    admission.in_flight = 2
    assert admission.at_limit
    assert admission.verdict(ANY, fleet) is Verdict.WAIT


def test_the_line_is_bounded_over_all_lanes() -> None:
    admission = line(max_waiting=2)
    joined(admission, Needs("a"), Needs("b"))
    assert admission.verdict(Needs("a"), full_and_free()) is Verdict.SHED


def test_other_limits_hold_at_once() -> None:
    admission = line(max_in_flight=1)
    admission.in_flight = 5
    admission.limits = AdmissionLimits(max_in_flight=6)
    assert not admission.at_limit
    admission.limits = AdmissionLimits(max_in_flight=0)
    assert not admission.at_limit


# Leaving the line.


def test_waiters_are_served_in_order_of_arrival() -> None:
    admission = line()
    tickets = joined(admission, *[ANY] * 5)
    fleet = fleet_of([member("a", 0, limit=3)])
    assert served(admission, fleet, A) == tickets[:3]
    assert admission.waiting == 2
    fleet.members[0].in_flight.give()
    assert served(admission, fleet, A) == tickets[3:4]


def test_between_lanes_the_earliest_that_can_go_is_served() -> None:
    admission = line()
    first_a, first_b, second_a, anywhere = joined(admission, Needs("a"), Needs("b"), Needs("a"), ANY)
    assert served(admission, full_and_free(a=1, b=0), B) == [first_b]
    assert served(admission, full_and_free(a=0, b=1), A) == [first_a]
    assert served(admission, full_and_free(a=0, b=0)) == [second_a, anywhere]


def test_a_place_at_one_backend_is_of_no_use_to_who_has_been_turned_away_there() -> None:
    admission = line()
    turned_away, fresh = joined(admission, Needs(None, frozenset({A})), ANY)
    fleet = fleet_of([member("a", 0, limit=1), member("b", 1, limit=1)])
    assert served(admission, fleet, A) == [fresh]
    assert admission.next(fleet) is None
    fleet.members[1].in_flight.give()
    assert served(admission, fleet, B) == [turned_away]


@pytest.mark.parametrize("freed", [BackendName("gone"), A])
def test_a_lease_that_ends_where_no_place_becomes_free_wakes_nobody(freed: BackendName) -> None:
    admission = line()
    joined(admission, Needs("b"))
    fleet = full_and_free(a=2, b=0)  # b's place is somebody else's doing, and told by somebody else
    assert admission.next(fleet, freed) is None
    assert admission.next(fleet) is not None


def test_under_a_common_limit_any_lease_that_ends_may_let_anybody_go() -> None:
    admission = line(max_in_flight=2)
    admission.in_flight = 2
    (waiter,) = joined(admission, Needs("b"))
    fleet = full_and_free(a=1, b=0)
    assert admission.next(fleet, A) is None
    admission.in_flight -= 1
    assert admission.next(fleet, A) is waiter


def test_leaving_from_the_middle_keeps_the_order_and_a_second_time_does_nothing() -> None:
    admission = line()
    one, two, three = joined(admission, ANY, ANY, ANY)
    for _ in range(2):
        admission.leave(two)
        assert admission.waiting == 2
    assert served(admission, fleet_of([member("a")])) == [one, three]
    admission.leave(three)
    assert admission.waiting == 0


def test_one_who_never_joined_can_leave() -> None:
    admission = line()
    admission.leave(Ticket(ANY))
    assert admission.waiting == 0


def test_who_cannot_be_served_any_more_is_found_in_order_of_arrival() -> None:
    admission = line()
    a1, b1, a2 = joined(admission, Needs("a"), Needs("b"), Needs("a"))
    fleet = fleet_of(
        [member("a", state=BackendState.DOWN, models=["a"]), member("b", 1, limit=1, models=["b"])]
    )
    assert admission.stranded(fleet) == [a1, a2]
    assert admission.stranded(fleet_of([])) == [a1, b1, a2]
    assert admission.stranded(full_and_free()) == []


# When to come again.


def test_nobody_waits_then_a_second_is_enough() -> None:
    assert line().retry_after_seconds(5.0) == 1


def test_a_line_that_has_not_moved_says_its_timeout() -> None:
    admission = line(timeout_seconds=12.3)
    joined(admission, ANY)
    assert admission.retry_after_seconds(5.0) == 13


def test_a_moving_line_says_how_long_it_will_take() -> None:
    admission = line(timeout_seconds=60)
    joined(admission, *[ANY] * 10)
    for now in (100.0, 101.0, 102.0, 103.0):
        admission.moved(now)
    assert admission.retry_after_seconds(104.0) == 10  # ten waiters, one each second
    assert admission.retry_after_seconds(108.0) == 20  # nobody since: slower than it seemed


@pytest.mark.parametrize(
    ("timeout_seconds", "ceiling"), [(0.2, 1), (20, 20), (3600, MAX_RETRY_AFTER_SECONDS)]
)
def test_the_hint_is_bounded_by_the_timeout_and_a_minute(timeout_seconds: float, ceiling: int) -> None:
    admission = line(timeout_seconds=timeout_seconds)
    joined(admission, *[ANY] * 10)
    admission.moved(0.0)
    assert admission.retry_after_seconds(1e6) == ceiling
    assert admission.retry_after_seconds(0.001) == 1


def test_the_pace_of_an_earlier_line_does_not_count() -> None:
    admission = line()
    (ticket,) = joined(admission, ANY)
    admission.moved(1.0)
    admission.leave(ticket)
    admission.moved(1.0)
    joined(admission, ANY)
    assert admission.retry_after_seconds(1.1) == 30


# What other processes may know of the line.


def test_who_could_not_go_after_all_stands_where_it_stood() -> None:
    admission = line()
    first, second = joined(admission, ANY, ANY)
    fleet = fleet_of([member("a", 0, limit=2)])
    assert admission.next(fleet) is first
    admission.leave(first)
    admission.put_back(first)
    assert admission.waiting == 2
    assert served(admission, fleet) == [first, second]


def test_who_was_alone_and_could_not_go_stands_in_line_again() -> None:
    admission = line()
    (ticket,) = joined(admission, ANY)
    admission.leave(ticket)
    admission.put_back(ticket)
    assert admission.heads() == [ticket.place]
    assert served(admission, fleet_of([member("a", 0, limit=1)])) == [ticket]


def test_a_backend_is_claimed_since_the_earliest_came_who_could_take_it() -> None:
    admission = line()
    fleet = full_and_free()
    a, b = (one.in_flight for one in fleet.members)
    tickets = [Ticket(Needs("b"), since=3.0), Ticket(Needs("b"), since=4.0), Ticket(ANY, since=5.0)]
    for ticket in tickets:
        admission.join(ticket)
    assert admission.claims(fleet) == {a: 5.0, b: 3.0}
    assert admission.heads() == [tickets[0].place, tickets[2].place]
    admission.leave(tickets[0])
    assert admission.claims(fleet) == {a: 5.0, b: 4.0}


def test_nothing_is_claimed_while_nobody_could_go_anyway() -> None:
    admission = line(max_in_flight=1)
    joined(admission, ANY)
    admission.in_flight = 1
    assert admission.claims(full_and_free()) == {}
    assert admission.heads() == []


def test_a_process_of_its_own_has_nobody_to_keep_a_place_for() -> None:
    (one,) = fleet_of([member("a", 0, limit=1)]).members
    one.in_flight.claim(1.0)
    assert not one.in_flight.claimed()
    assert one.admits()
