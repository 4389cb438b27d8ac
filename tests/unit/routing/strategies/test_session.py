from __future__ import annotations

from collections import Counter

import pytest

from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import BackendName, BackendState, Fleet
from prefix_router.routing.ring import point_of
from prefix_router.routing.strategies.session import Session
from tests.support.fleets import backend_names, busy, fleet_of, member, numbered, query

A, B, C = backend_names("a", "b", "c")


def outcome(fleet: Fleet, session: str | None, **details: object) -> tuple[str, Reason]:
    decision = Session().choose(query(session=session, **details), fleet)  # type: ignore[arg-type]
    assert decision is not None
    return decision.member.name, decision.reason


def ring_order(fleet: Fleet, session: str) -> list[str]:
    return list(fleet.ring.successors(point_of(session)))


def test_session_stays_on_its_backend_whatever_the_prompt_and_the_load() -> None:
    fleet = busy({A: 99, B: 0, C: 50})
    for session in ("session-1", "session-12", "größe", "\udc80"):
        home = ring_order(fleet, session)[0]
        for key in (None, 1, 2):
            decision = Session().choose(query(key, session=session), fleet)
            assert decision == Decision(fleet.by_name[home], Reason.SESSION, home)  # type: ignore[index,arg-type]


def test_sessions_spread_over_the_fleet() -> None:
    fleet = busy(dict.fromkeys(numbered(7), 0), 1280)
    sessions = Counter(outcome(fleet, f"session-{number}")[0] for number in range(2_100))
    assert len(sessions) == 7
    # Five standard deviations of a fair count.
    assert all(abs(count - 300) < 5 * (300 * 6 / 7) ** 0.5 + 0.1 * 300 for count in sessions.values())


@pytest.mark.parametrize("state", [BackendState.DOWN, BackendState.EJECTED])
def test_session_of_an_unusable_backend_goes_to_the_next_on_the_ring_and_comes_back(
    state: BackendState,
) -> None:
    healthy = busy({A: 0, B: 0, C: 0})
    session = next(f"s{number}" for number in range(1_000) if ring_order(healthy, f"s{number}")[0] == "a")
    broken = fleet_of([member("a", state=state), member("b"), member("c")])
    stand_in = broken.by_name[BackendName(ring_order(healthy, session)[1])]
    assert Session().choose(query(session=session), broken) == Decision(stand_in, Reason.FAILOVER, A)
    assert outcome(healthy, session) == ("a", Reason.SESSION)


def test_backend_that_failed_on_this_request_is_passed_over() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    first, second, third = ring_order(fleet, "s")
    assert outcome(fleet, "s", failed=[first]) == (second, Reason.FAILOVER)
    assert outcome(fleet, "s", failed=[first, second]) == (third, Reason.FAILOVER)
    assert Session().choose(query(session="s", failed="abc"), fleet) is None


def test_back_pressure_sends_the_session_on_as_overflow() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    first, second, third = ring_order(fleet, "s")
    assert outcome(fleet, "s", refused=[first]) == (second, Reason.OVERFLOW)
    assert outcome(fleet, "s", refused=[first], failed=[second]) == (third, Reason.OVERFLOW)


def test_backends_without_the_model_are_no_home() -> None:
    fleet = fleet_of([member("a", models=["m"]), member("b", models=["n"]), member("c", models=["n"])])
    for number in range(20):
        assert outcome(fleet, f"s{number}", model="m") == ("a", Reason.SESSION)
    assert Session().choose(query(session="s", model="unknown"), fleet) is None


def test_request_without_a_session_goes_to_the_least_loaded() -> None:
    fleet = busy({A: 2, B: 1, C: 2})
    assert outcome(fleet, None) == ("b", Reason.KEYLESS)


def test_empty_fleet_has_no_backend_for_a_session() -> None:
    assert Session().choose(query(session="s"), fleet_of([])) is None


def test_session_of_a_backend_at_its_limit_overflows_to_the_next_on_the_ring() -> None:
    idle = busy({A: 0, B: 0, C: 0})
    session = next(f"s{number}" for number in range(1_000) if ring_order(idle, f"s{number}")[0] == "a")
    fleet = fleet_of([member("a", 2, limit=2), member("b"), member("c")])
    assert outcome(fleet, session) == (ring_order(idle, session)[1], Reason.OVERFLOW)
    full = fleet_of([member(name, 2, limit=2) for name in "abc"])
    assert Session().choose(query(session=session), full) is None
