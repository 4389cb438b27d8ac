"""Prompts here are of token ids, so that tokens are exact; a fleet's speed is the assumed one unless said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import count
from math import inf

import pytest

from prefix_router.routing.backlog import ASSUMED_TOKENS_PER_SECOND
from prefix_router.routing.chain import PrefixChain
from prefix_router.routing.decision import Decision, Reason, Visit
from prefix_router.routing.explain import explain
from prefix_router.routing.fleet import BackendName, BackendState, Fleet
from prefix_router.routing.strategies.adaptive import (
    ASSUMED_ROOM_TOKENS,
    HIGH_PRICE,
    HIGH_PRICE_SECONDS,
    LEAST_HOME_PULL,
    LOW_PRICE,
    RUNNING_SECONDS,
    SLOW_START_SECONDS,
    Adaptive,
)
from tests.support.chains import chain_of, conversation, of_ids, prose
from tests.support.fleets import backend_names, busy, fleet_of, key_homed_at, member, numbered, query

A, B, C, D = backend_names("a", "b", "c", "d")
TOKENS = 4096
PROMPT = of_ids((1, TOKENS))
_NUMBERS = count()


def fleet_with(*names: str, **in_flight: int) -> Fleet:
    return fleet_of(member(name, in_flight.get(name, 0)) for name in names)


def ask(
    strategy: Adaptive,
    fleet: Fleet,
    chain: PrefixChain = PROMPT,
    *,
    now: float = 0.0,
    popular: int = 0,
    key: int | None = None,
    draw: int = 0,
    failed: Iterable[str] = (),
    refused: Iterable[str] = (),
    model: str | None = None,
    held: Mapping[BackendName, float] | None = None,
) -> Decision:
    asked = query(key, model=model, draw=draw, failed=failed, refused=refused)
    decision = strategy.choose(asked._replace(chain=chain, popular_tokens=popular, now=now, held=held), fleet)
    assert decision is not None
    return decision


def outcome(
    strategy: Adaptive, fleet: Fleet, chain: PrefixChain = PROMPT, **how: object
) -> tuple[str, Reason]:
    decision = ask(strategy, fleet, chain, **how)  # type: ignore[arg-type]
    return decision.member.name, decision.reason


def visit_of(decision: Decision) -> Visit:
    assert decision.visit is not None
    return decision.visit


def send(
    strategy: Adaptive, fleet: Fleet, name: str, chain: PrefixChain = PROMPT, *, now: float = 0.0
) -> Visit:
    """Send a prompt to the backend of this name, wherever it would have gone."""
    others = [found.name for found in fleet.members if found.name != name]
    decision = ask(strategy, fleet, chain, now=now, refused=others)
    assert decision.member.name == name
    visit = visit_of(decision)
    visit.sent(now, streamed=True)
    return visit


def hold(
    strategy: Adaptive, fleet: Fleet, name: str, chain: PrefixChain = PROMPT, *, now: float = 0.0
) -> Visit:
    """Let a backend have a prompt, and no work of it any more."""
    visit = send(strategy, fleet, name, chain, now=now)
    visit.ended(now, None, None, None)
    return visit


def burden(strategy: Adaptive, fleet: Fleet, name: str, tokens: int, *, now: float = 0.0) -> Visit:
    """Give a backend so much work, with a prompt that nobody else asks for."""
    return send(strategy, fleet, name, of_ids((("burden", next(_NUMBERS)), tokens)), now=now)


# Who gets it.


def test_without_a_prompt_the_least_loaded_gets_it() -> None:
    fleet = busy({A: 3, B: 1, C: 2})
    decision = Adaptive().choose(query(5), fleet)
    assert decision == Decision(fleet.by_name[B], Reason.KEYLESS)


def test_when_nobody_can_take_it_there_is_no_decision() -> None:
    fleet = fleet_of([member("a", state=BackendState.DOWN), member("b", models=["other"])])
    strategy = Adaptive()
    assert strategy.choose(query(1, model="m")._replace(chain=PROMPT), fleet) is None
    assert strategy.choose(query(1, model="m"), fleet) is None
    assert strategy.choose(query(1)._replace(chain=PROMPT), fleet_of([])) is None


def test_what_nobody_holds_is_placed_and_ties_are_told_apart_by_the_draw() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    decisions = [ask(strategy, fleet, draw=draw) for draw in range(300)]
    assert {decision.reason for decision in decisions} == {Reason.PLACED}
    assert Counter(decision.member.name for decision in decisions) == {"a": 100, "b": 100, "c": 100}


def test_what_nobody_holds_goes_where_the_least_work_is() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    burden(strategy, fleet, "a", 500)
    burden(strategy, fleet, "c", 100)
    assert {outcome(strategy, fleet, draw=draw) for draw in range(9)} == {("b", Reason.PLACED)}
    burden(strategy, fleet, "b", 200)
    assert outcome(strategy, fleet) == ("c", Reason.PLACED)


def test_the_backend_that_holds_a_prompt_gets_it_again() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    hold(strategy, fleet, "b")
    assert {outcome(strategy, fleet, draw=draw) for draw in range(9)} == {("b", Reason.AFFINITY)}


def test_the_backend_that_holds_more_of_it_is_preferred() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    hold(strategy, fleet, "a", of_ids((1, 1000), (2, 500)))
    hold(strategy, fleet, "c", of_ids((1, 2000), (3, 500)))
    decision = ask(strategy, fleet)
    assert (decision.member.name, decision.reason) == ("c", Reason.AFFINITY)
    assert visit_of(decision).expected_tokens == 1984


def test_a_conversation_continues_where_its_last_answer_was_computed() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    texts = [prose(30, 1), prose(20, 2), prose(10, 3)]
    hold(strategy, fleet, "b", chain_of(conversation(texts[0])))
    decision = ask(strategy, fleet, chain_of(conversation(*texts)))
    assert (decision.member.name, decision.reason) == ("b", Reason.AFFINITY)
    asked, answered = chain_of(conversation(*texts)).ends
    assert visit_of(decision).expected_tokens == asked.tokens + asked.answer_tokens
    assert answered.answer_tokens == 0


def test_models_are_served_by_those_that_have_them() -> None:
    fleet = fleet_of([member("a", models=["m"]), member("b", models=["n"]), member("c", models=["m", "n"])])
    strategy = Adaptive()
    hold(strategy, fleet, "a")
    for _ in range(2):
        assert outcome(strategy, fleet, model="m") == ("a", Reason.AFFINITY)
        assert {outcome(strategy, fleet, model="n", draw=draw)[0] for draw in range(4)} == {"b", "c"}
        assert strategy.choose(query(model="x")._replace(chain=PROMPT), fleet) is None


# The price.


@pytest.mark.parametrize(("share", "target"), [(0.98, "a"), (1.02, "b")])
def test_work_that_would_be_done_twice_has_its_price(share: float, target: str) -> None:
    """The holder keeps the prompt until its line is longer than the price of what another has to compute."""
    fleet, strategy = fleet_with("a", *numbered(400)), Adaptive()
    hold(strategy, fleet, "a", of_ids((1, 1024)))
    burden(strategy, fleet, "a", round(1024 * LOW_PRICE * share))
    decision = ask(strategy, fleet, of_ids((1, 1024)))
    assert (decision.member.name == "a") is (target == "a")
    assert decision.reason is (Reason.AFFINITY if target == "a" else Reason.OVERFLOW)


def test_the_price_rises_with_the_backlog_of_the_fleet() -> None:
    def longest_line(waiting_seconds: float) -> float:
        """How much longer than the others' the line of a holder may be, in lengths of the prompt."""
        fleet, strategy = fleet_with("a", *numbered(7)), Adaptive()
        prompt = of_ids((1, 512))
        hold(strategy, fleet, "a", prompt)
        for name in (A, *numbered(7)):
            if waiting_seconds:
                burden(strategy, fleet, name, round(waiting_seconds * ASSUMED_TOKENS_PER_SECOND))
        steps = 0
        while ask(strategy, fleet, prompt).member.name == "a":
            burden(strategy, fleet, "a", 64 + steps % 2)
            steps += 1
        return steps * 64 / 512

    none, some, much, more = (longest_line(share * HIGH_PRICE_SECONDS) for share in (0.0, 0.5, 1.0, 2.0))
    assert none == pytest.approx(LOW_PRICE, abs=0.5)
    assert some == pytest.approx((LOW_PRICE + HIGH_PRICE) / 2, abs=0.6)
    assert much == pytest.approx(HIGH_PRICE, abs=0.6)
    assert more == much


@pytest.mark.parametrize(("line", "target"), [(4300, "a"), (4500, "b")])
def test_a_popular_beginning_costs_what_it_takes(line: int, target: str) -> None:
    """4,000 tokens at 1 and 96 at the low price are 4,384: who holds them all has that much for a lead."""
    fleet, strategy = fleet_with("a", *numbered(400)), Adaptive()
    hold(strategy, fleet, "a")
    burden(strategy, fleet, "a", line)
    assert (ask(strategy, fleet, popular=4000).member.name == "a") is (target == "a")
    assert ask(strategy, fleet, popular=0).member.name == "a"


def test_who_holds_a_popular_beginning_has_that_much_less_to_do() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "b", of_ids((1, 2048), (2, 100)))
    prompt = of_ids((1, 2048), (3, 500))
    decision = ask(strategy, fleet, prompt, popular=2048)
    assert (decision.member.name, decision.reason) == ("b", Reason.PLACED)
    burden(strategy, fleet, "b", 2000)
    assert ask(strategy, fleet, prompt, popular=2048).member.name == "b"
    burden(strategy, fleet, "b", 100)
    assert ask(strategy, fleet, prompt, popular=2048).member.name == "a"


def test_a_request_that_moves_away_from_its_tokens_is_an_overflow() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    burden(strategy, fleet, "a", 200_000)
    assert outcome(strategy, fleet) == ("b", Reason.OVERFLOW)


# Running requests.


def test_each_running_request_is_a_small_charge() -> None:
    strategy = Adaptive()
    assert outcome(strategy, fleet_with("a", "b", "c", a=2, b=1, c=3)) == ("b", Reason.PLACED)
    charge = RUNNING_SECONDS * ASSUMED_TOKENS_PER_SECOND
    for running, target in ((5, "a"), (7, "b")):
        fleet, strategy = fleet_with("a", "b", a=running), Adaptive()
        burden(strategy, fleet, "b", round(6 * charge))
        assert ask(strategy, fleet).member.name == target


def test_running_requests_count_per_share_of_weight() -> None:
    fleet = fleet_of([member("a", 2), member("b", 5, weight=4)])
    assert ask(Adaptive(), fleet).member.name == "b"


def test_a_new_weight_counts_at_once() -> None:
    strategy = Adaptive()
    before = fleet_of([member("a", 2), member("b", 5, weight=4)])
    assert ask(strategy, before).member.name == "b"
    heavy, light = before.members
    after = fleet_of([heavy, replace(light, backend=replace(light.backend, weight=1))])
    assert ask(strategy, after).member.name == "a"


# Work and its end.


def test_work_is_gone_with_its_first_token() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    visit = burden(strategy, fleet, "a", 5000)
    assert ask(strategy, fleet).member.name == "b"
    assert strategy.pending_tokens() == 5000
    visit.first_token(0.5)
    assert strategy.pending_tokens() == 0
    assert {ask(strategy, fleet, draw=draw).member.name for draw in range(2)} == {"a", "b"}
    visit.ended(0.6, None, None, None)
    assert strategy.pending_tokens() == 0


def test_work_is_gone_when_the_request_ends_without_a_token() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    burden(strategy, fleet, "a", 5000).ended(0.5, None, None, None)
    assert strategy.pending_tokens() == 0


def test_work_of_which_nothing_is_heard_expires() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    burden(strategy, fleet, "a", 5000)
    assert ask(strategy, fleet, now=0.1).member.name == "b"
    assert {ask(strategy, fleet, draw=draw, now=60.0).member.name for draw in range(2)} == {"a", "b"}


def test_a_visit_that_was_never_sent_changes_nothing() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    visit = visit_of(ask(strategy, fleet))
    visit.first_token(0.1)
    visit.ended(0.2, None, None, None)
    assert strategy.pending_tokens() == 0
    assert len(strategy.index) == 0


def test_a_slow_backend_gets_less_of_the_work() -> None:
    fleet, strategy = fleet_with("a", "b", "c", "d"), Adaptive()
    for round_ in range(40):
        for name in "abcd":
            now = 20.0 * round_
            visit = burden(strategy, fleet, name, 5000, now=now)
            visit.first_token(now + (5.0 if name == "a" else 0.25))
    work = [burden(strategy, fleet, name, 3000, now=1000.0) for name in "bcd"]
    assert len(work) == 3
    burden(strategy, fleet, "a", 500, now=1000.0)
    assert ask(strategy, fleet, of_ids((9, 200)), now=1000.0).member.name != "a"


# The home of a key.


def test_with_several_routers_what_nobody_is_known_to_hold_goes_home() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive(several_routers=True)
    for name in "abc":
        key = key_homed_at(fleet, name)
        decision = ask(strategy, fleet, of_ids((name, TOKENS)), key=key, draw=1)
        assert (decision.member.name, decision.home, decision.reason) == (name, name, Reason.PLACED)


def test_with_one_router_home_pulls_a_little() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    key = key_homed_at(fleet, "b")
    decisions = [ask(strategy, fleet, key=key, draw=draw) for draw in range(3)]
    assert {(decision.member.name, decision.home) for decision in decisions} == {("b", "b")}
    burden(strategy, fleet, "b", round(TOKENS * LOW_PRICE * LEAST_HOME_PULL * 1.5))
    assert ask(strategy, fleet, key=key).member.name != "b"


def test_without_a_key_nobody_is_at_home() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    decisions = [ask(strategy, fleet, draw=draw) for draw in range(3)]
    assert {decision.member.name for decision in decisions} == {"a", "b", "c"}
    assert {decision.home for decision in decisions} == {None}


def test_home_is_left_when_its_line_is_as_long_as_what_it_would_save() -> None:
    fleet, strategy = fleet_with("a", *numbered(400)), Adaptive(several_routers=True)
    key = key_homed_at(fleet, "a")
    burden(strategy, fleet, "a", round(1024 * LOW_PRICE * 0.98))
    assert ask(strategy, fleet, of_ids((1, 1024)), key=key).member.name == "a"
    burden(strategy, fleet, "a", 200)
    assert ask(strategy, fleet, of_ids((1, 1024)), key=key).member.name != "a"


def test_a_home_that_cannot_take_it_pulls_nobody() -> None:
    fleet = fleet_of([member("a", state=BackendState.DOWN), member("b"), member("c", 1)])
    strategy = Adaptive(several_routers=True)
    decision = ask(strategy, fleet, key=key_homed_at(fleet, "a"), draw=1)
    assert (decision.member.name, decision.home) == ("b", "a")


def test_that_there_are_other_routers_is_learned_from_what_backends_had_beyond_expectation() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    key = key_homed_at(fleet, "c")
    trusted = []
    for other in range(5):
        visit = hold(strategy, fleet, "a", of_ids((100 + other, TOKENS)))
        visit.ended(0.0, TOKENS // 2, TOKENS, None)
        burden(strategy, fleet, "c", 0 if other else round(TOKENS * LOW_PRICE * 0.5))
        trusted.append(ask(strategy, fleet, of_ids((50 + other, TOKENS)), key=key).member.name)
    assert trusted == ["c"] * 5
    assert strategy.home_trust == pytest.approx(0.5 * (1 - 0.95**5))
    for other in range(200):
        hold(strategy, fleet, "a", of_ids((1000 + other, TOKENS))).ended(0.0, 0, TOKENS, None)
    assert strategy.home_trust < 0.01
    burden(strategy, fleet, "c", round(TOKENS * LOW_PRICE * LEAST_HOME_PULL * 1.5))
    assert ask(strategy, fleet, of_ids((7, TOKENS)), key=key).member.name != "c"


def test_little_beyond_expectation_says_nothing_of_other_routers() -> None:
    fleet, strategy = fleet_with("a"), Adaptive()
    for other in range(50):
        hold(strategy, fleet, "a", of_ids((100 + other, TOKENS))).ended(0.0, 48, TOKENS, None)
        hold(strategy, fleet, "a", of_ids((300 + other, 200))).ended(0.0, 200, 200, None)
    assert strategy.home_trust == 0


# Backends that come and go.


def test_a_backend_that_joins_a_running_fleet_starts_slowly() -> None:
    strategy = Adaptive()
    before = fleet_with("a", "b")
    ask(strategy, before, now=100.0)
    joined = fleet_of([*before.members, member("c")])
    found = []
    for share in (0.0, 0.5, 0.9, 1.1):
        now = 100.0 + share * SLOW_START_SECONDS
        for name in "ab":
            burden(strategy, joined, name, 2000, now=now)
        found.append(ask(strategy, joined, of_ids((7, 1000)), now=now).member.name == "c")
    assert found == [False, False, True, True]


def test_a_backend_that_has_just_joined_is_not_left_out_for_good() -> None:
    strategy = Adaptive()
    before = fleet_with("a")
    ask(strategy, before, now=100.0)
    joined = fleet_of([*before.members, member("b")])
    burden(strategy, joined, "a", 300_000, now=100.0)
    assert ask(strategy, joined, of_ids((7, 1000)), now=100.0).member.name == "b"


def test_the_first_fleet_starts_at_once() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    burden(strategy, fleet, "a", 10)
    assert ask(strategy, fleet).member.name == "b"
    assert {known.joined_at for known in strategy._known.values()} == {-inf}


def test_a_backend_that_was_down_has_lost_what_it_held() -> None:
    healthy, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, healthy, "a")
    a, b = healthy.members
    ask(strategy, fleet_of([replace(a, state=BackendState.DOWN), b]))
    assert outcome(strategy, healthy)[1] is Reason.PLACED


@pytest.mark.parametrize("state", [BackendState.EJECTED, BackendState.HALF_OPEN, BackendState.STARTING])
def test_a_backend_that_was_in_doubt_has_lost_nothing(state: BackendState) -> None:
    healthy, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, healthy, "a")
    a, b = healthy.members
    ask(strategy, fleet_of([replace(a, state=state), b]))
    assert outcome(strategy, healthy) == ("a", Reason.AFFINITY)


def test_a_backend_that_left_is_forgotten_and_comes_back_with_nothing() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    burden(strategy, fleet, "a", 1000)
    a, b = fleet.members
    ask(strategy, fleet_of([b]))
    assert strategy.pending_tokens() == 0
    assert outcome(strategy, fleet_of([a, b]), now=1000.0)[1] is Reason.PLACED


def test_another_backend_under_the_same_name_has_nothing() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    _, b = fleet.members
    assert outcome(strategy, fleet_of([member("a"), b]))[1] is Reason.PLACED


def test_a_fleet_that_comes_and_goes_takes_no_more_and_more_slots() -> None:
    strategy, stays = Adaptive(), member("a")
    for number in range(200):
        fleet = fleet_of([stays, member(f"b{number}")], 1)
        hold(strategy, fleet, f"b{number}", now=float(number))
    assert len(strategy._known) == 2
    assert len(strategy.index._odometer) <= 3


def test_a_backend_that_has_restarted_is_forgotten() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    strategy.emptied(BackendName("nobody"))
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)
    strategy.emptied(A)
    assert outcome(strategy, fleet)[1] is Reason.PLACED


# What the backends say themselves.


def test_who_had_nothing_of_what_was_expected_three_times_in_a_row_is_forgotten() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    for cached in (0, 0, TOKENS, 0, 0):
        hold(strategy, fleet, "a").ended(0.0, cached, TOKENS, None)
        assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)
    hold(strategy, fleet, "a").ended(0.0, 0, TOKENS, None)
    assert outcome(strategy, fleet)[1] is Reason.PLACED


def test_who_still_had_some_of_it_is_not() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    for cached in (0, 0, 500, 0, 0):
        hold(strategy, fleet, "a").ended(0.0, cached, TOKENS, None)
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)


def test_room_shrinks_with_each_disappointment_and_grows_with_each_confirmation() -> None:
    fleet, strategy = fleet_with("a"), Adaptive()
    hold(strategy, fleet, "a")
    known = strategy._known[A]
    assert known.room == ASSUMED_ROOM_TOKENS
    hold(strategy, fleet, "a").ended(0.0, 1000, TOKENS, None)
    assert known.room == ASSUMED_ROOM_TOKENS * 0.98
    hold(strategy, fleet, "a").ended(0.0, TOKENS - 100, TOKENS, None)
    assert known.room == pytest.approx(ASSUMED_ROOM_TOKENS * 0.98 * 1.02)


def test_room_stays_within_reason() -> None:
    fleet, strategy = fleet_with("a"), Adaptive()
    known = ask(strategy, fleet) and strategy._known[A]
    for cached, bound in ((1000, 10_000), (TOKENS, 1_000_000_000)):
        for _ in range(800):
            hold(strategy, fleet, "a").ended(0.0, cached, TOKENS, None)
        assert known.room == bound


def test_without_counts_of_the_backends_nothing_is_corrected() -> None:
    fleet, strategy = fleet_with("a"), Adaptive()
    hold(strategy, fleet, "a")
    for cached, prompt in ((None, TOKENS), (0, None), (0, 0)):
        for _ in range(5):
            hold(strategy, fleet, "a").ended(0.0, cached, prompt, None)
    assert strategy._known[A].room == ASSUMED_ROOM_TOKENS
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)


def test_the_counts_of_backends_are_taken_as_shares() -> None:
    """An engine counts 3 tokens where the router counts 4; it had all of them."""
    fleet, strategy = fleet_with("a"), Adaptive()
    hold(strategy, fleet, "a")
    hold(strategy, fleet, "a").ended(0.0, TOKENS * 3 // 4, TOKENS * 3 // 4, None)
    assert strategy._known[A].room > ASSUMED_ROOM_TOKENS


def test_what_a_backend_got_since_takes_the_place_of_a_prompt() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    strategy._known[A].room = 10_000
    hold(strategy, fleet, "a", of_ids((2, 9000)))
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)
    hold(strategy, fleet, "a", of_ids((3, 2000)))
    assert outcome(strategy, fleet)[1] is Reason.PLACED


def test_answers_take_room_too() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    strategy._known[A].room = 10_000
    hold(strategy, fleet, "a", of_ids((2, 100))).ended(0.0, None, None, 11_000)
    assert outcome(strategy, fleet)[1] is Reason.PLACED


# What is known better.


def test_what_the_query_says_is_held_overrides_the_index() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    hold(strategy, fleet, "a")
    held = {A: 0.0, C: 0.75, BackendName("nobody"): 1.0}
    decision = ask(strategy, fleet, held=held)
    assert (decision.member.name, decision.reason) == ("c", Reason.AFFINITY)
    assert visit_of(decision).expected_tokens == TOKENS * 3 // 4
    assert outcome(strategy, fleet, held={B: 0.5}) == ("a", Reason.AFFINITY)


def test_a_visit_says_how_much_the_backend_should_have() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    assert visit_of(ask(strategy, fleet)).expected_tokens == 0
    hold(strategy, fleet, "a")
    assert visit_of(ask(strategy, fleet)).expected_tokens == TOKENS
    assert visit_of(ask(strategy, fleet, of_ids((1, 1000), (2, 100)))).expected_tokens == 960
    assert visit_of(ask(strategy, fleet, refused="a")).expected_tokens == 0


# Retries.


def test_backends_that_failed_or_refused_are_left_out() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    hold(strategy, fleet, "a")
    assert outcome(strategy, fleet, failed="a", refused="b") == ("c", Reason.FAILOVER)
    assert outcome(strategy, fleet, refused="a")[0] in "bc"
    asked = query(failed="ab", refused="c")._replace(chain=PROMPT)
    assert strategy.choose(asked, fleet) is None


def test_after_a_failure_the_reason_is_failover_even_where_it_is_cached() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    for name in "ab":
        hold(strategy, fleet, name)
    assert outcome(strategy, fleet, failed="a") == ("b", Reason.FAILOVER)


# Asking what if.


def test_asking_what_if_changes_nothing() -> None:
    fleet, strategy = fleet_with("a", "b", "c"), Adaptive()
    hold(strategy, fleet, "a")
    burden(strategy, fleet, "b", 700)
    key = key_homed_at(fleet, "c")
    known, slots, pending = dict(strategy._known), len(strategy.index._odometer), strategy.pending_tokens()
    found = explain(query(key)._replace(chain=PROMPT), fleet, strategy, 4)
    assert found.decision is not None
    assert found.if_home_down is not None
    assert found.if_home_full is not None
    assert found.decision.member.name == "a"
    assert found.decision.home == "c"
    assert found.if_home_down.member.name == "a"
    assert strategy._known == known
    assert (len(strategy.index._odometer), strategy.pending_tokens()) == (slots, pending)
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)


def test_a_view_knows_what_the_strategy_knows_and_nothing_of_strangers() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    hold(strategy, fleet, "a")
    view = deepcopy(strategy)
    a, b = fleet.members
    wider = fleet_of([a, b, member("c")])
    assert outcome(view, wider) == ("a", Reason.AFFINITY)
    assert outcome(view, wider, refused="ab") == ("c", Reason.PLACED)
    assert set(strategy._known) == {"a", "b"}
    assert ask(strategy, fleet).member is a


def test_a_view_decides_by_the_counts_of_the_fleet_that_it_is_shown() -> None:
    fleet, strategy = fleet_with("a", "b"), Adaptive()
    ask(strategy, fleet)
    a, b = fleet.members
    busy_a = replace(a, in_flight=member("a", 9).in_flight)
    assert {ask(deepcopy(strategy), fleet_of([busy_a, b]), draw=draw).member.name for draw in range(2)} == {
        "b"
    }


# Limits and half-open backends: who can take a request changes from one to the next.


def test_a_backend_at_its_limit_gets_nothing_though_it_holds_the_prompt() -> None:
    fleet, strategy = fleet_of([member("a", limit=2), member("b"), member("c")]), Adaptive()
    hold(strategy, fleet, "a")
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)
    fleet.members[0].in_flight.count = 2
    assert outcome(strategy, fleet)[0] in "bc"
    fleet.members[0].in_flight.count = 1
    assert outcome(strategy, fleet) == ("a", Reason.AFFINITY)
