from __future__ import annotations

import pytest

from prefix_router.fleetsim.command.events import EventError, parse_events
from prefix_router.fleetsim.plan import FleetChange, FleetEvent


def test_events_are_put_in_order_and_who_joins_gets_the_next_number() -> None:
    assert parse_events("restart@120:0,join@60,leave@90:2,join@70", replicas=3) == (
        FleetEvent(60, FleetChange.JOIN, 3),
        FleetEvent(70, FleetChange.JOIN, 4),
        FleetEvent(90, FleetChange.LEAVE, 2),
        FleetEvent(120, FleetChange.RESTART, 0),
    )


def test_nothing_may_happen() -> None:
    assert parse_events("", replicas=3) == ()


def test_who_has_left_can_come_back_and_who_has_joined_can_leave() -> None:
    events = parse_events("leave@1:0,join@2:0,join@3,leave@4:2", replicas=2)
    assert [event.replica for event in events] == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hop@1:1", "expected CHANGE@SECONDS:REPLICA with one of join, leave, restart, got 'hop@1:1'"),
        ("leave", "expected CHANGE@SECONDS:REPLICA"),
        ("leave@soon:1", "expected CHANGE@SECONDS:REPLICA"),
        ("leave@1:one", "expected CHANGE@SECONDS:REPLICA"),
        ("leave@1", "which replica? leave@1:REPLICA"),
        ("restart@1", "which replica? restart@1:REPLICA"),
        ("leave@1:3", "replica 3 cannot leave at 1 s"),
        ("restart@1:3", "replica 3 cannot restart at 1 s"),
        ("leave@1:0,leave@2:0", "replica 0 cannot leave at 2 s"),
        ("leave@1:0,restart@2:0", "replica 0 cannot restart at 2 s"),
        ("join@1:0", "replica 0 cannot join at 1 s"),
        ("leave@-1:0", "replica 0 cannot leave at -1 s"),
        ("leave@nan:0", "replica 0 cannot leave at nan s"),
        ("leave@1:0,leave@2:1,leave@3:2", "nobody is left at 3 s"),
    ],
)
def test_what_cannot_happen_is_said(text: str, message: str) -> None:
    with pytest.raises(EventError) as error:
        parse_events(text, replicas=3)
    assert message in str(error.value)
