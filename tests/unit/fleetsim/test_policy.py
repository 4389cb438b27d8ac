from __future__ import annotations

import pytest

from prefix_router.fleetsim.keys import Conversations, name_blocks
from prefix_router.fleetsim.policy import Policy, RoutedRequest, StrategyPolicy
from prefix_router.routing.decision import Decision, Query, Reason
from prefix_router.routing.fleet import Fleet
from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.prefix_aware import PrefixAware
from prefix_router.routing.strategies.random import Random
from tests.support.fleets import backend_names, busy, key_homed_at
from tests.support.simulated import routed, simulated

A, B, C = backend_names("a", "b", "c")


class Learner:
    """Takes the first member; remembers what its visits are told, and when it was asked."""

    name = "learner"
    expected_tokens = 0

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        self.told.append(("asked", query.now))
        return Decision(fleet.members[0], Reason.RANDOM, visit=self)

    def sent(self, now: float, *, streamed: bool) -> None:
        self.told.append(("sent", now, streamed))

    def first_token(self, now: float) -> None:
        self.told.append(("first token", now))

    def ended(
        self, now: float, cached_tokens: int | None, prompt_tokens: int | None, completion_tokens: int | None
    ) -> None:
        self.told.append(("ended", now, cached_tokens, prompt_tokens, completion_tokens))


def with_chain(blocks: range) -> RoutedRequest:
    request = simulated(blocks)
    made = routed(request)
    made.query = made.query._replace(chain=Conversations().chain(request, name_blocks(request)))
    return made


def test_a_strategy_of_the_router_decides_on_the_query_and_the_fleet() -> None:
    fleet = busy({A: 0, B: 0, C: 0})
    request = routed(simulated([1]))
    request.query = request.query._replace(key=key_homed_at(fleet, B))
    decision = StrategyPolicy(PrefixAware(10)).choose(request, fleet, 0.0)
    assert decision is not None
    assert (decision.member.name, decision.reason) == (B, Reason.AFFINITY)


def test_the_visit_of_a_decision_is_told_what_becomes_of_the_request() -> None:
    learner = Learner()
    policy = StrategyPolicy(learner)
    request = routed(simulated(range(4), output=9))
    policy.choose(request, busy({A: 0}), 1.0)
    policy.dispatched(request, A, 1.5)
    policy.first_token(request, A, 2.0, cached_tokens=48)
    policy.finished(request, A, 3.0, whole=True)
    assert learner.told == [
        ("asked", 1.0),
        ("sent", 1.5, True),
        ("first token", 2.0),
        ("ended", 3.0, 48, 64, 9),
    ]


def test_of_an_answer_that_was_cut_off_no_counts_are_known() -> None:
    learner = Learner()
    policy = StrategyPolicy(learner)
    request = routed(simulated(range(4)))
    policy.choose(request, busy({A: 0}), 1.0)
    policy.dispatched(request, A, 1.0)
    policy.first_token(request, A, 2.0, cached_tokens=48)
    policy.finished(request, A, 3.0, whole=False)
    assert learner.told[-1] == ("ended", 3.0, None, None, None)


def test_a_request_that_ended_is_remembered_no_longer() -> None:
    policy = StrategyPolicy(Learner())
    requests = [routed(simulated([number])) for number in range(3)]
    for request in requests:
        policy.choose(request, busy({A: 0}), 1.0)
        policy.dispatched(request, A, 1.0)
    assert policy.followed_count == 3
    for request in requests:
        policy.finished(request, A, 3.0, whole=request is requests[0])
    assert policy.followed_count == 0


def test_a_strategy_without_visits_is_told_nothing() -> None:
    policy = StrategyPolicy(Random())
    request = routed(simulated([1]))
    policy.choose(request, busy({A: 0}), 0.0)
    policy.dispatched(request, A, 0.0)
    policy.first_token(request, A, 1.0, 0)
    assert policy.followed_count == 0
    policy.finished(request, A, 2.0, whole=True)
    policy.emptied(A, 3.0)


def test_a_strategy_that_knows_who_holds_what_forgets_whose_cache_is_cold() -> None:
    fleet = busy({A: 0, B: 0})
    strategy = Adaptive()
    policy = StrategyPolicy(strategy)
    first, again = with_chain(range(100)), with_chain(range(100))
    decision = policy.choose(first, fleet, 0.0)
    assert decision is not None
    policy.dispatched(first, decision.member.name, 0.0)
    policy.finished(first, decision.member.name, 1.0, whole=True)
    assert again.query.chain is not None
    assert strategy.held_tokens(again.query, again.query.chain)
    policy.emptied(decision.member.name, 2.0)
    assert not strategy.held_tokens(again.query, again.query.chain)


def test_a_policy_must_choose_and_need_not_listen() -> None:
    policy = Policy()
    request = routed(simulated([1]))
    policy.dispatched(request, A, 0.0)
    policy.first_token(request, A, 1.0, 0)
    policy.finished(request, A, 2.0, whole=True)
    policy.emptied(A, 3.0)
    with pytest.raises(NotImplementedError):
        policy.choose(request, busy({A: 0}), 0.0)
