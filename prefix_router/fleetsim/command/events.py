"""What happens to the fleet meanwhile, as it is written on the command line: `join@60,leave@90:2`."""

from __future__ import annotations

from prefix_router.fleetsim.plan import FleetChange, FleetEvent


class EventError(Exception):
    """Events that cannot happen."""


def parse_events(text: str, replicas: int) -> tuple[FleetEvent, ...]:
    """The events of a list of CHANGE@SECONDS:REPLICA, in order of time. Raises EventError.

    replicas: how many there are at the start, 0 and up. A replica that joins without a number gets the next.
    """
    asked = sorted(map(_parse, filter(None, text.split(","))), key=lambda event: event[0])
    present = set(range(replicas))
    following = replicas
    events = []
    for seconds, change, replica in asked:
        if replica is None:
            if change is not FleetChange.JOIN:
                raise EventError(f"which replica? {change.value}@{seconds:g}:REPLICA")
            replica = following
        if (replica in present) is (change is FleetChange.JOIN) or not seconds >= 0:
            raise EventError(f"replica {replica} cannot {change.value} at {seconds:g} s")
        following = max(following, replica + 1)
        if change is FleetChange.JOIN:
            present.add(replica)
        elif change is FleetChange.LEAVE:
            present.remove(replica)
        if not present:
            raise EventError(f"nobody is left at {seconds:g} s")
        events.append(FleetEvent(seconds, change, replica))
    return tuple(events)


def _parse(text: str) -> tuple[float, FleetChange, int | None]:
    change, _, when = text.partition("@")
    seconds, _, replica = when.partition(":")
    try:
        return float(seconds), FleetChange(change), int(replica) if replica else None
    except ValueError:
        known = ", ".join(change.value for change in FleetChange)
        raise EventError(f"expected CHANGE@SECONDS:REPLICA with one of {known}, got {text!r}") from None
