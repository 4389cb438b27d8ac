from __future__ import annotations

from copy import deepcopy

import pytest

from prefix_router.routing.backlog import Backlog, fleet_speed
from prefix_router.routing.chain import LEVEL_TOKENS, PrefixChain, PromptEnd
from prefix_router.routing.decision import Query
from prefix_router.routing.fleet import Backend, BackendName, Fleet
from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.shared import Ended, FirstToken, Gone, Note, Pending, Sent, identity
from tests.support.fleets import fleet_of, member

TOKENS = 4096
ONE, TWO = 1, 2


def prompt(text: int, tokens: int = TOKENS) -> PrefixChain:
    """The chain of a prompt that begins like no other one."""
    levels = sum(level <= tokens for level in LEVEL_TOKENS)
    return PrefixChain(
        [text * 1000 + level for level in range(levels)], tokens, [PromptEnd(tokens, text * 1000 + 999)]
    )


def asked(text: int, now: float = 0.0, draw: int = 0) -> Query:
    return Query(None, None, draw, chain=prompt(text), now=now)


def sent(fleet: Fleet, to: int, visit: int = 1, *, text: int = 1, at: float = 0.0, missing: int = 0) -> Sent:
    chain = prompt(text)
    names = [*chain.names, *(end.name for end in chain.ends)]
    return Sent(visit, at, identity(fleet.members[to].backend), missing, True, names)


def ended(
    fleet: Fleet, at_backend: int, observed: int | None, *, expected: int = TOKENS, completion: int = 0
) -> Ended:
    backend = identity(fleet.members[at_backend].backend)
    return Ended(1, 1.0, backend, TOKENS, expected, observed, completion)


@pytest.fixture
def fleet() -> Fleet:
    return fleet_of(member(name) for name in "abc")


@pytest.fixture
def strategy(fleet: Fleet) -> Adaptive:
    """One that has seen its fleet."""
    made = Adaptive()
    made.choose(asked(99), fleet)
    return made


def chosen(strategy: Adaptive, query: Query, fleet: Fleet) -> str:
    decision = strategy.choose(query, fleet)
    assert decision is not None
    return decision.member.name


@pytest.mark.parametrize("to", [0, 1, 2])
def test_a_prompt_goes_where_another_worker_sent_it(strategy: Adaptive, fleet: Fleet, to: int) -> None:
    strategy.apply(ONE, sent(fleet, to))
    assert {chosen(strategy, asked(1, draw=draw), fleet) for draw in range(3)} == {"abc"[to]}


def test_the_work_of_others_counts_until_its_first_token(strategy: Adaptive, fleet: Fleet) -> None:
    strategy.apply(ONE, sent(fleet, 0, missing=TOKENS))
    assert strategy.pending_tokens() == TOKENS
    assert {chosen(strategy, asked(2, draw=draw), fleet) for draw in range(3)} == {"b", "c"}
    strategy.apply(ONE, FirstToken(1, 0.5))
    assert strategy.pending_tokens() == 0
    assert {chosen(strategy, asked(2, draw=draw), fleet) for draw in range(3)} == {"a", "b", "c"}


@pytest.mark.parametrize("note", [ended, lambda *_: Gone(1.0)], ids=["it ended", "its worker is gone"])
def test_or_until_nothing_more_is_heard_of_it(strategy: Adaptive, fleet: Fleet, note: object) -> None:
    strategy.apply(ONE, sent(fleet, 0, missing=TOKENS))
    strategy.apply(TWO, sent(fleet, 1, missing=64))
    assert callable(note)
    said: Note = note(fleet, 0, None)
    strategy.apply(ONE, said)
    assert strategy.pending_tokens() == 64
    assert chosen(strategy, asked(1), fleet) == "a"  # what it has computed it has


def test_work_of_which_nothing_is_heard_expires_by_the_time_of_its_note(
    strategy: Adaptive, fleet: Fleet
) -> None:
    strategy.apply(ONE, sent(fleet, 0, missing=TOKENS, at=-1000.0))
    strategy.choose(asked(2), fleet)
    assert strategy.pending_tokens() == 0


def test_the_speed_of_a_backend_is_learned_from_the_times_of_the_notes(
    strategy: Adaptive, fleet: Fleet
) -> None:
    for visit in range(400):
        strategy.apply(ONE, sent(fleet, 0, visit, missing=TOKENS, at=visit))
        strategy.apply(ONE, FirstToken(visit, visit + 0.5))
    strategy.apply(ONE, sent(fleet, 0, 1000, missing=TOKENS, at=1000.0))
    backlog = strategy._known[BackendName("a")].backlog
    assert backlog.seconds_per_token == pytest.approx(0.5 / TOKENS, rel=0.05)


def test_what_others_find_cached_or_not_is_learned_as_if_it_were_found_here(
    strategy: Adaptive, fleet: Fleet
) -> None:
    room = strategy._known[BackendName("a")].room
    strategy.apply(ONE, ended(fleet, 0, TOKENS))
    assert strategy._known[BackendName("a")].room > room
    strategy.apply(ONE, ended(fleet, 1, 0))
    assert strategy._known[BackendName("b")].room < room
    assert strategy.home_trust == 0
    strategy.apply(ONE, ended(fleet, 2, TOKENS, expected=0))
    assert strategy.home_trust > 0


def test_a_backend_that_lost_its_cache_as_others_see_it_is_forgotten(
    strategy: Adaptive, fleet: Fleet
) -> None:
    strategy.apply(ONE, sent(fleet, 0))
    for worker in (ONE, TWO, ONE):
        assert chosen(strategy, asked(1), fleet) == "a"
        strategy.apply(worker, ended(fleet, 0, 0))
    assert {chosen(strategy, asked(1, draw=draw), fleet) for draw in range(3)} == {"a", "b", "c"}


def test_answers_of_others_take_room_too(strategy: Adaptive, fleet: Fleet) -> None:
    strategy.apply(ONE, sent(fleet, 0))
    strategy.apply(ONE, ended(fleet, 0, None, completion=2_000_000))
    assert {chosen(strategy, asked(1, draw=draw), fleet) for draw in range(3)} == {"a", "b", "c"}


def test_notes_about_backends_and_requests_that_are_not_known_change_nothing(
    strategy: Adaptive, fleet: Fleet
) -> None:
    elsewhere = fleet_of([member("z")])
    for note in (sent(elsewhere, 0, missing=TOKENS), FirstToken(7, 1.0), ended(elsewhere, 0, 0), Gone(1.0)):
        strategy.apply(ONE, note)
    assert strategy.pending_tokens() == 0
    assert len(strategy.index) == 0


def test_a_backend_that_takes_over_a_name_is_another_one() -> None:
    name = BackendName("a")
    assert identity(Backend(name, "http://1")) == identity(Backend(name, "http://1", 2))
    assert identity(Backend(name, "http://1")) != identity(Backend(name, "http://2"))


class Told:
    """Peers that have something to say."""

    def __init__(self, *notes: Note) -> None:
        self.notes = [(ONE, note) for note in notes]
        self.heard: list[Note] = []

    def number(self) -> int:
        return 17

    def write(self, note: Note) -> None:
        self.heard.append(note)

    def read(self) -> list[tuple[int, Note]]:
        notes, self.notes = self.notes, []
        return notes


def test_others_are_heard_before_a_decision_and_only_once_there_is_a_fleet(fleet: Fleet) -> None:
    strategy = Adaptive()
    strategy.peers = peers = Told(sent(fleet, 1))
    assert not strategy.follow()
    assert peers.notes
    assert chosen(strategy, asked(1), fleet) == "b"
    assert not peers.notes


def test_a_view_for_asking_what_if_takes_nothing_from_the_one_it_is_of(
    strategy: Adaptive, fleet: Fleet
) -> None:
    strategy.peers = peers = Told(sent(fleet, 1))
    deepcopy(strategy).choose(asked(1), fleet)
    assert peers.notes


def test_others_are_told_what_becomes_of_a_request(strategy: Adaptive, fleet: Fleet) -> None:
    strategy.peers = peers = Told()
    strategy.apply(ONE, sent(fleet, 0))
    decision = strategy.choose(asked(1), fleet)
    assert decision is not None
    assert decision.visit is not None
    decision.visit.sent(1.0, streamed=True)
    decision.visit.first_token(2.0)
    decision.visit.ended(3.0, 1024, 2 * TOKENS, 10)
    backend, chain = identity(fleet.members[0].backend), prompt(1)
    assert peers.heard == [
        Sent(17, 1.0, backend, 0, True, [*chain.names, chain.ends[0].name]),
        FirstToken(17, 2.0),
        Ended(17, 3.0, backend, TOKENS, TOKENS, 512, 10),
    ]


def test_what_others_sent_there_belongs_to_the_speed_that_a_first_token_shows(
    strategy: Adaptive, fleet: Fleet
) -> None:
    strategy.peers = peers = Told()
    decision = strategy.choose(asked(1), fleet)
    assert decision is not None
    assert decision.visit is not None
    decision.visit.sent(1.0, streamed=True)
    backlog = strategy._known[decision.member.name].backlog
    speed = backlog.seconds_per_token
    at = fleet.members.index(decision.member)
    peers.notes = [(ONE, sent(fleet, at, 5, text=2, missing=3 * TOKENS, at=1.0))]
    decision.visit.first_token(11.0)
    assert backlog.seconds_per_token == speed  # the backend is still busy: nothing to learn yet
    strategy.apply(ONE, FirstToken(5, 12.0))
    assert backlog.seconds_per_token > speed


def test_pending_work_is_bounded_and_counts_for_its_own_worker() -> None:
    pending, backlog = Pending(most=2), Backlog(fleet_speed())
    works = [backlog.add(100, 0.0, streamed=True) for _ in range(4)]
    pending.add(TWO, 0, backlog, works[3])
    for visit in range(3):
        pending.add(ONE, visit, backlog, works[visit])
    assert len(pending) == 3
    pending.drop(ONE, 0)  # the oldest, which is left to expire
    assert [work.done for work in works] == [False] * 4
    pending.drop_all(ONE)
    assert [work.done for work in works] == [False, True, True, False]
    pending.finish(TWO, 0, 1.0)
    assert works[3].done
    assert len(pending) == 0
