"""What a policy is asked and told in a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefix_router.fleetsim.keys import name_blocks, prefix_key
from prefix_router.fleetsim.plan import FleetChange, FleetEvent, FleetPlan
from prefix_router.fleetsim.policy import StrategyPolicy
from prefix_router.fleetsim.simulation import simulate
from prefix_router.routing.strategies.random import Random as RandomStrategy
from tests.support.simulated import simulated

if TYPE_CHECKING:
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.decision import Decision, Query
    from prefix_router.routing.fleet import BackendName, Fleet

JOIN, LEAVE, RESTART = FleetChange.JOIN, FleetChange.LEAVE, FleetChange.RESTART


class Recorder(StrategyPolicy):
    """Routes at random and remembers everything."""

    def __init__(self) -> None:
        super().__init__(RandomStrategy())
        self.asked: list[Query] = []
        self.told: list[tuple[object, ...]] = []

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        self.asked.append(routed.query)
        return super().choose(routed, fleet, now)

    def dispatched(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        self.told.append(("dispatched", routed.names, backend, now))

    def first_token(
        self, routed: RoutedRequest, backend: BackendName, now: float, cached_tokens: int
    ) -> None:
        self.told.append(("first token", routed.names, backend, now, cached_tokens))

    def finished(self, routed: RoutedRequest, backend: BackendName, now: float, *, whole: bool) -> None:
        self.told.append(("finished" if whole else "lost", routed.names, backend, now))

    def emptied(self, backend: BackendName, now: float) -> None:
        self.told.append(("emptied", backend, now))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The policy of every router from now on."""
    recorder = Recorder()
    monkeypatch.setattr(
        "prefix_router.fleetsim.simulation.build_policy",
        lambda _name, _threshold, *, several_routers: recorder,
    )
    return recorder


@pytest.mark.parametrize("anchored", [True, False])
def test_a_policy_is_asked_what_a_strategy_of_the_router_is(recorder: Recorder, anchored: bool) -> None:
    request = simulated(range(10), session="s", user_turn=32, model="m")
    simulate([request], FleetPlan("", prefix_tokens=64, anchored=anchored))
    (query,) = recorder.asked
    assert query.key == prefix_key(request, 64, anchored=anchored)
    assert (query.model, query.session, query.failed) == ("m", "s", frozenset())
    assert 0 <= query.draw < 2**64


def test_a_policy_is_told_what_becomes_of_a_request(recorder: Recorder) -> None:
    requests = [simulated([1, 2, 3], seconds, output=2) for seconds in (0.0, 10.0)]
    names = name_blocks(requests[0])
    outcomes = simulate(requests, FleetPlan("", replicas=1)).outcomes
    assert recorder.told == [
        told
        for outcome, cached_tokens in zip(outcomes, (0, 32), strict=True)
        for told in (
            ("dispatched", names, "replica-0", outcome.arrival_seconds),
            ("first token", names, "replica-0", outcome.first_token_seconds, cached_tokens),
            ("finished", names, "replica-0", outcome.end_seconds),
        )
    ]


def test_a_policy_is_told_of_a_lost_request_and_of_cold_caches(recorder: Recorder) -> None:
    request = simulated([1, 2, 3], 0.0)
    names = name_blocks(request)
    events = (FleetEvent(0.001, RESTART, 0), FleetEvent(5.0, LEAVE, 0), FleetEvent(6.0, JOIN, 0))
    (outcome,) = simulate([request], FleetPlan("", replicas=1, events=events)).outcomes
    assert outcome.failed
    assert recorder.told == [
        ("dispatched", names, "replica-0", 0.0),
        ("emptied", "replica-0", 0.001),
        ("lost", names, "replica-0", 0.001),
        ("emptied", "replica-0", 6.0),
    ]
    assert recorder.asked[-1].failed == {"replica-0"}
