from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.routing.fleet import BackendState
from prefix_router.routing.health import Health, HealthEvent, HealthPolicy, may_eject, step

POLICY = HealthPolicy(
    probe_failures=3, request_failures=4, cooldown_seconds=5.0, recovery_successes=2, max_ejected_fraction=0.5
)
OK, BAD, GONE = HealthEvent.PROBE_OK, HealthEvent.PROBE_BAD, HealthEvent.UNREACHABLE
GOOD_REQUEST, BAD_REQUEST = HealthEvent.REQUEST_OK, HealthEvent.REQUEST_BAD
STARTING, HEALTHY, EJECTED = BackendState.STARTING, BackendState.HEALTHY, BackendState.EJECTED
DOWN, HALF_OPEN, WARMING = BackendState.DOWN, BackendState.HALF_OPEN, BackendState.WARMING


def after(*events: HealthEvent | float, start: Health | None = None) -> Health:
    """Apply events in order; a number lets that many seconds pass."""
    health, now = start or Health(), 0.0
    for event in events:
        if isinstance(event, HealthEvent):
            health = step(health, event, now, POLICY)
        else:
            now += event
    return health


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], STARTING),
        ([OK], HEALTHY),
        ([GOOD_REQUEST], HEALTHY),
        ([BAD, BAD], STARTING),
        ([BAD, BAD, BAD], EJECTED),
        ([OK, BAD, BAD], HEALTHY),
        ([OK, BAD, BAD, OK, BAD, BAD], HEALTHY),
        ([OK, BAD, BAD, GOOD_REQUEST, BAD, BAD], HEALTHY),
        ([OK, BAD, BAD, BAD], EJECTED),
        ([OK, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST], HEALTHY),
        ([OK, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST], EJECTED),
        ([OK, BAD_REQUEST, BAD_REQUEST, GOOD_REQUEST, BAD_REQUEST, BAD_REQUEST], HEALTHY),
        ([GONE], DOWN),
        ([OK, GONE], DOWN),
        ([OK, GONE, OK], HALF_OPEN),
        ([OK, GONE, BAD], DOWN),
        ([OK, GONE, GOOD_REQUEST], HALF_OPEN),
        ([OK, GONE, OK, OK], HALF_OPEN),
        ([OK, GONE, OK, OK, OK], HEALTHY),
        ([OK, GONE, OK, GOOD_REQUEST, OK], HEALTHY),
        ([OK, GONE, OK, BAD], EJECTED),
        ([OK, GONE, OK, BAD_REQUEST], EJECTED),
        ([OK, GONE, OK, GONE], DOWN),
        ([OK, BAD, BAD, BAD, 1.0, OK], EJECTED),
        ([OK, BAD, BAD, BAD, 5.0, OK], HALF_OPEN),
        ([OK, BAD, BAD, BAD, GOOD_REQUEST], HALF_OPEN),
        ([OK, BAD, BAD, BAD, GONE], DOWN),
        ([OK, BAD, BAD, BAD, 5.0, OK, OK, OK], HEALTHY),
    ],
    ids=lambda value: (
        "-".join(getattr(item, "value", str(item)) for item in value) if isinstance(value, list) else ""
    ),
)
def test_the_table(events: list[HealthEvent | float], state: BackendState) -> None:
    assert after(*events).state is state


@pytest.mark.parametrize("event", [OK, BAD, GONE, GOOD_REQUEST, BAD_REQUEST])
def test_only_whoever_warms_a_backend_up_moves_it(event: HealthEvent) -> None:
    warming = Health(WARMING)
    assert after(*[event] * 5, start=warming) is warming


@pytest.mark.parametrize(
    ("event", "state"), [(HealthEvent.WARMED, HEALTHY), (HealthEvent.WARM_UP_OVER, STARTING)]
)
def test_a_warm_up_ends_well_or_in_time(event: HealthEvent, state: BackendState) -> None:
    assert after(3.0, event, start=Health(WARMING)) == Health(state, since=3.0)
    for before in (Health(other) for other in BackendState if other is not WARMING):
        assert after(event, start=before) is before


def test_green_probes_do_not_forgive_failing_requests() -> None:
    events = [OK, BAD_REQUEST, OK, BAD_REQUEST, OK, BAD_REQUEST, OK, BAD_REQUEST]
    assert after(*events).state is EJECTED


def test_who_failed_requests_returns_through_requests_only() -> None:
    lost = after(OK, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST, BAD_REQUEST, 5.0, OK)
    assert lost.state is HALF_OPEN
    assert after(OK, OK, OK, OK, start=lost).state is HALF_OPEN
    assert after(GOOD_REQUEST, GOOD_REQUEST, start=lost).state is HEALTHY


def test_who_failed_while_half_open_by_a_request_must_win_back_by_requests() -> None:
    back = after(OK, GONE, OK, BAD_REQUEST, 5.0, OK)
    assert back.state is HALF_OPEN
    assert after(OK, OK, OK, start=back).state is HALF_OPEN


def test_a_change_of_state_records_when() -> None:
    assert after(OK, 7.0, GONE).since == 7.0
    assert after(OK, 7.0, GONE, 3.0, GONE).since == 7.0


def test_evidence_that_changes_nothing_makes_no_new_value() -> None:
    healthy = after(OK)
    assert step(healthy, OK, 9.0, POLICY) is healthy
    assert step(healthy, GOOD_REQUEST, 9.0, POLICY) is healthy


@pytest.mark.parametrize(
    ("states", "allowed"),
    [
        ([HEALTHY], False),
        ([HEALTHY, HEALTHY], True),
        ([EJECTED, HEALTHY], False),
        ([DOWN, HEALTHY, HEALTHY], False),
        ([DOWN, HEALTHY, HEALTHY, HEALTHY], True),
        ([EJECTED, HALF_OPEN, HEALTHY, HEALTHY], False),
        ([HALF_OPEN, HEALTHY, HEALTHY, HEALTHY], True),
        ([], False),
    ],
)
def test_ejections_never_take_more_than_their_share(states: list[BackendState], allowed: bool) -> None:
    assert may_eject(states, POLICY) is allowed


@given(st.lists(st.sampled_from(HealthEvent), max_size=60))
def test_every_backend_can_come_back(events: list[HealthEvent]) -> None:
    lost = after(*events)
    recovered = after(1000.0, OK, GOOD_REQUEST, GOOD_REQUEST, GOOD_REQUEST, start=lost)
    assert recovered.state is HEALTHY


@given(st.lists(st.sampled_from(HealthEvent), max_size=60))
def test_unreachable_is_always_down_and_counts_stay_bounded(events: list[HealthEvent]) -> None:
    health = after(*events)
    assert health.probe_failures < POLICY.probe_failures
    assert health.request_failures < POLICY.request_failures
    assert health.successes < POLICY.recovery_successes
    assert step(health, GONE, 1.0, POLICY).state is DOWN
