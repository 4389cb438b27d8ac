"""Backend health as a transition table: (state, event) -> state.

Two kinds of evidence move a backend. *Unreachable* (refused, no route) is proof: it is down at once,
and one successful probe starts its return. *Slow or bad answers* are only a hint, since a busy engine
answers `/health` late and one poisonous prompt makes any engine answer 500: it takes several in a row,
and `may_eject` keeps the rest of the fleet from following.

A backend that lost its place through failed requests must win it back through requests: its `/health`
was green all the while. Any other backend may return on probes alone, so that a fleet without traffic
heals too.

A backend that joins a running fleet may have to warm up first (`warming`). Requests and failed probes say
nothing about it then: it is still starting. Only whoever warms it up moves it, and that one gives up in time.

Rules::

    state      event            next
    starting   probe_ok         healthy
    starting   request_ok       healthy
    healthy    probe_bad × n    ejected     (n = probe_failures, in a row)
    healthy    request_bad × n  ejected     (n = request_failures, in a row, no success between)
    warming    warmed           healthy
    warming    warm_up_over     starting    (it did not get warm in time: from here on like any other)
    any other  unreachable      down
    down       probe_ok         half_open
    ejected    probe_ok         half_open   (once cooldown_seconds have passed)
    ejected    request_ok       half_open
    half_open  ok × n           healthy     (n = recovery_successes; see above for which count)
    half_open  bad              ejected

`starting` counts failures like `healthy`. Everything not listed leaves the state as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from collections.abc import Collection


class HealthEvent(Enum):
    """Evidence about one backend."""

    PROBE_OK = "probe_ok"
    PROBE_BAD = "probe_bad"
    """A probe timed out, or was answered with an error status or garbage."""
    UNREACHABLE = "unreachable"
    """A probe or request was refused, found no route or no address."""
    REQUEST_OK = "request_ok"
    """A response began with a status that is the engine's normal work (also 4xx)."""
    REQUEST_BAD = "request_bad"
    """A request met a reset, a timeout, garbage, a broken stream or a 5xx that is not back-pressure."""
    WARMED = "warmed"
    """A backend that joined has shown what it had to show."""
    WARM_UP_OVER = "warm_up_over"
    """A backend that joined has had its time to get warm."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """How much evidence it takes. Counts are of events in a row; see the module docstring.

    max_ejected_fraction: the share of the fleet (0..1) that ejections may take out of service.
    """

    probe_failures: int = 3
    request_failures: int = 5
    cooldown_seconds: float = 5.0
    recovery_successes: int = 2
    max_ejected_fraction: float = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one backend. `since` is the time (seconds) at which the state was entered.

    flawless: in service, and nothing is held against it, so that another good request changes nothing.
    """

    state: BackendState = BackendState.STARTING
    since: float = 0.0
    probe_failures: int = 0
    request_failures: int = 0
    successes: int = 0
    lost_through_requests: bool = False
    flawless: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        failures = self.probe_failures or self.request_failures
        object.__setattr__(self, "flawless", self.state is BackendState.HEALTHY and not failures)


def step(health: Health, event: HealthEvent, now: float, policy: HealthPolicy) -> Health:
    """Return the health after `event` at time `now` (seconds, same clock as `Health.since`)."""
    if health.state is BackendState.WARMING:
        return _warming(health, event, now)
    if event is HealthEvent.WARMED or event is HealthEvent.WARM_UP_OVER:
        return health
    if event is HealthEvent.UNREACHABLE:
        if health.state is BackendState.DOWN:
            return health
        return Health(BackendState.DOWN, now)
    match health.state:
        case BackendState.STARTING | BackendState.HEALTHY:
            return _in_service(health, event, now, policy)
        case BackendState.EJECTED | BackendState.DOWN:
            return _out_of_service(health, event, now, policy)
        case BackendState.HALF_OPEN:
            return _half_open(health, event, now, policy)


_OUT = frozenset({BackendState.EJECTED, BackendState.DOWN, BackendState.HALF_OPEN})


def may_eject(states: Collection[BackendState], policy: HealthPolicy) -> bool:
    """Whether one more backend of a fleet with these states may be ejected.

    Whoever is down or has not yet won its place back counts against the share too: an ejection must not take
    half of what is left.
    """
    out = sum(state in _OUT for state in states)
    return out + 1 <= policy.max_ejected_fraction * len(states)


def _warming(health: Health, event: HealthEvent, now: float) -> Health:
    if event is HealthEvent.WARMED:
        return Health(BackendState.HEALTHY, now)
    return Health(BackendState.STARTING, now) if event is HealthEvent.WARM_UP_OVER else health


def _in_service(health: Health, event: HealthEvent, now: float, policy: HealthPolicy) -> Health:
    if event is HealthEvent.REQUEST_OK or event is HealthEvent.PROBE_OK:
        # A green probe says nothing about failing requests: only a good request forgives those.
        failures = health.request_failures if event is HealthEvent.PROBE_OK else 0
        since = health.since if health.state is BackendState.HEALTHY else now
        healthy = Health(BackendState.HEALTHY, since, request_failures=failures)
        return health if healthy == health else healthy
    if event is HealthEvent.PROBE_BAD:
        failures = min(health.probe_failures + 1, policy.probe_failures)
        if failures >= policy.probe_failures:
            return Health(BackendState.EJECTED, now)
        return replace(health, probe_failures=failures)
    failures = min(health.request_failures + 1, policy.request_failures)
    if failures >= policy.request_failures:
        return Health(BackendState.EJECTED, now, lost_through_requests=True)
    return replace(health, request_failures=failures)


def _out_of_service(health: Health, event: HealthEvent, now: float, policy: HealthPolicy) -> Health:
    answered = event is HealthEvent.REQUEST_OK or (
        event is HealthEvent.PROBE_OK
        and (health.state is BackendState.DOWN or now - health.since >= policy.cooldown_seconds)
    )
    if not answered:
        return health
    return Health(BackendState.HALF_OPEN, now, lost_through_requests=health.lost_through_requests)


def _half_open(health: Health, event: HealthEvent, now: float, policy: HealthPolicy) -> Health:
    if event is HealthEvent.PROBE_BAD or event is HealthEvent.REQUEST_BAD:
        lost = health.lost_through_requests or event is HealthEvent.REQUEST_BAD
        return Health(BackendState.EJECTED, now, lost_through_requests=lost)
    if event is HealthEvent.PROBE_OK and health.lost_through_requests:
        return health
    if health.successes + 1 >= policy.recovery_successes:
        return Health(BackendState.HEALTHY, now)
    return replace(health, successes=health.successes + 1)
