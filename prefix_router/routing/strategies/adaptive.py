"""Strategy `adaptive`: the backend where a request adds the least work, its own and everybody's counted.

For each backend that can take the request,

    cost = time for the prefill work that it has
         + time to compute what it does not hold of this prompt, times a price
         + a small charge for each request that it runs

and the cheapest one gets it. With a price of 1 each request would minimise its own wait, and the fleet would
drown in computing the same prompts again: what is best for one is not best for all. Work that is done twice
costs everybody who comes after, and the more so the busier the fleet is, so the price rises with the fleet's
backlog. The exception is a beginning that is popular anyway (`routing.depth`): another backend that holds it
will be of use to many, so its tokens cost what they take. Without this, a system prompt that everybody shares
would keep everybody where it is.

Who holds what is known from an index of what was sent where (`routing.prefix_index`), or exactly, where the
query says (`Query.held`). The backends' own `cached_tokens` correct it: who had nothing of what was expected,
several times in a row, has lost its cache and is forgotten, as is who was down; and how much a backend has
room for is learned from whether it still had what it should have.

Other routers send requests that this one does not see. What it has not seen itself may be at the home of its
key on the ring, where the others would send it if they knew nothing, too. Whether there are others is learned
from what backends have beyond what was expected of them (`home_trust`). A little of this pull is always there
(`LEAST_HOME_PULL`), because an index forgets: what is sent home again is found again, and lives in one place.

A backend that joins a running fleet has nothing to do and nothing cached, and all new work would go there at
once. So its costs count more at first (`SLOW_START_SECONDS`).

Cost: one walk over the levels of the prompt and one over the backends. Memory: the index. State is this
process's own; `workers.journal` tells the other workers of a host.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

from prefix_router.routing.backlog import Backlog, Speed, Work, fleet_speed
from prefix_router.routing.chain import LEVEL_TOKENS
from prefix_router.routing.decision import Decision, Reason
from prefix_router.routing.fleet import BackendState
from prefix_router.routing.prefix_index import MOST_LEVELS, PrefixIndex
from prefix_router.routing.strategies.least_outstanding_requests import by_load
from prefix_router.routing.strategies.shared import Ended, FirstToken, Gone, Note, Pending, Sent, identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.routing.chain import PrefixChain
    from prefix_router.routing.decision import Query
    from prefix_router.routing.fleet import BackendName, Fleet, InFlight, Member
    from prefix_router.routing.strategies.shared import Peers

LOW_PRICE = 4.0
HIGH_PRICE = 16.0
HIGH_PRICE_SECONDS = 3.0
"""Mean backlog of the fleet from which on the high price holds; below, the price is in between."""
RUNNING_SECONDS = 0.008
"""The charge for each running request."""
SLOW_START_SECONDS = 30.0
_SLOW_START_LEAST = 0.1

ASSUMED_ROOM_TOKENS = 1_000_000
_LEAST_ROOM_TOKENS, _MOST_ROOM_TOKENS = 10_000, 1_000_000_000
_ROOM_LOSS, _ROOM_GAIN = 0.98, 1.02
_NOTICED_TOKENS = 256
"""A smaller difference between expected and observed says nothing: tokens are estimated, blocks cut off."""
_COLD_STREAK = 3

LEAST_HOME_PULL = 0.1
"""Also with one router: what the index has forgotten, or never knew, may still be where it went before."""
_FULL_HOME_TRUST = 0.05
_LEAST_HOME_TRUST = 0.02
_HOME_TRUST_STEP = 0.05


class _Known:
    """What is known of one backend. room: how many tokens its cache has room for."""

    __slots__ = (
        "backlog",
        "cold_streak",
        "identity",
        "in_flight",
        "joined_at",
        "room",
        "slot",
        "state",
        "weight",
    )

    def __init__(self, member: Member, slot: int, joined_at: float, speed: Speed) -> None:
        self.in_flight: InFlight = member.in_flight
        self.state = member.state
        self.weight = member.backend.weight
        self.identity = identity(member.backend)
        self.slot = slot
        self.joined_at = joined_at
        self.backlog = Backlog(speed)
        self.room = ASSUMED_ROOM_TOKENS
        self.cold_streak = 0


_Seat: TypeAlias = "tuple[Member, _Known]"


class Adaptive:
    """The cheapest backend.

    most_levels: how many levels its index remembers. several_routers: whether routers on other hosts send to
    the same backends; if so, what it has not seen counts as held at home, always and from the start. If not,
    that is learned: `home_trust` is the mean share of a prompt that backends had beyond what was expected.
    peers: the other workers of this host, set by whoever starts them; None where there are none.
    """

    name = "adaptive"

    def __init__(self, *, most_levels: int = MOST_LEVELS, several_routers: bool = False) -> None:
        self.several_routers = several_routers
        self.index = PrefixIndex(most_levels)
        self.home_trust = 0.0
        self.peers: Peers | None = None
        self._speed = fleet_speed()
        self._known: dict[BackendName, _Known] = {}
        self._by_identity: dict[int, _Known] = {}
        self._elsewhere = Pending()
        self._fleet: Fleet | None = None
        self._seats: Sequence[_Seat] = ()
        self._seats_of: tuple[Member, ...] = ()
        self._frozen = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Adaptive:
        """A view for asking what if: shares what is known, and takes nothing over from the fleets it sees."""
        view = copy(self)
        view._frozen = True
        return view

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """The cheapest backend; the least loaded for a request without a prompt; None when nobody can."""
        chain = query.chain
        if chain is None:
            return by_load(query, fleet, Reason.KEYLESS)
        if fleet is not self._fleet and not self._frozen:
            self._adopt(fleet, query.now)
        if self.peers is not None:
            self.follow()
        members = fleet.routable(query.model, query.failed | query.refused)
        if not members:
            return None
        seats = self._seats if members is self._seats_of else self._seat(members)
        now = query.now
        held = self.held_tokens(query, chain)
        home = None if query.key is None else fleet.home(query.key, query.model)
        tokens, popular = chain.tokens, query.popular_tokens
        price = self._price(seats, now)
        pull = price * self._home_pull()
        speed = self._speed.seconds_per_token
        fast, slow = self._speed.band()
        newcomers_since = now - SLOW_START_SECONDS
        most_alone = tokens - popular
        most_priced = price * most_alone
        best_cost = float("inf")
        best_cached = most = 0
        start = query.draw % len(seats)
        best = seats[start]
        for seat in (*seats[start:], *seats[:start]):
            member, known = seat
            backlog = known.backlog
            cached = held.get(known.slot, 0)
            if cached > popular:
                alone = tokens - cached
                work = backlog.tokens + price * alone
            else:
                alone = most_alone
                work = backlog.tokens + most_priced + (popular - cached)
            if cached > most:
                most = cached
            if member is home:
                work -= pull * alone
            own = backlog.own_speed.seconds_per_token
            cost = work * (speed if fast <= own <= slow else own)  # Backlog.seconds_per_token, without a call
            cost += RUNNING_SECONDS * member.in_flight.count / known.weight
            if known.joined_at > newcomers_since:
                cost /= max((now - known.joined_at) / SLOW_START_SECONDS, _SLOW_START_LEAST)
            if cost < best_cost:
                best, best_cost, best_cached = seat, cost, cached
        member, known = best
        visit = AdaptiveVisit(self, known, query, best_cached)
        return Decision(member, _reason(query, best_cached, most), None if home is None else home.name, visit)

    def held_tokens(self, query: Query, chain: PrefixChain) -> dict[int, int]:
        """How many tokens of the prompt each backend holds, by the slots of the index."""
        index = self.index
        held = {slot: LEVEL_TOKENS[levels - 1] for slot, levels in index.held_levels(chain.names).items()}
        for end in chain.ends:
            for slot in index.holders(end.name):
                tokens = min(end.tokens + end.answer_tokens, chain.tokens)
                if tokens > held.get(slot, 0):
                    held[slot] = tokens
        if query.held is not None:
            for name, share in query.held.items():
                known = self._known.get(name)
                if known is not None:
                    held[known.slot] = round(share * chain.tokens)
        return held

    def pending_tokens(self) -> int:
        """How much prefill work all backends of the fleet have, in tokens."""
        return sum(known.backlog.tokens for known in self._known.values())

    def emptied(self, name: BackendName) -> None:
        """Forget what a backend held: it has restarted."""
        known = self._known.get(name)
        if known is not None:
            self.index.forget(known.slot)

    def follow(self) -> bool:
        """Take over what other workers did meanwhile, some of it at a time; say whether there was any."""
        peers = self.peers
        if peers is None or self._frozen or not self._known:
            return False
        found = False
        for worker, note in peers.read():
            self.apply(worker, note)
            found = True
        return found

    def apply(self, worker: int, note: Note) -> None:
        """Take over what another worker did."""
        match note:
            case Sent():
                known = self._by_identity.get(note.backend)
                if known is not None:
                    work = self.begin(known, note.missing_tokens, note.names, note.at, streamed=note.streamed)
                    self._elsewhere.add(worker, note.visit, known.backlog, work)
            case FirstToken():
                self._elsewhere.finish(worker, note.visit, note.at)
            case Ended():
                self._elsewhere.drop(worker, note.visit)
                known = self._by_identity.get(note.backend)
                if known is not None:
                    self.end(known, note)
            case Gone():
                self._elsewhere.drop_all(worker)

    def begin(self, known: _Known, missing: int, names: Sequence[int], now: float, *, streamed: bool) -> Work:
        """Count the work of a request that is sent, and note who has the prompt from now on."""
        work = known.backlog.add(missing, now, streamed=streamed)
        self.index.advance(known.slot, missing, known.room)
        self.index.record(names, known.slot)
        return work

    def end(self, known: _Known, ended: Ended) -> None:
        """Correct what was thought of the backend of a request that has ended."""
        if ended.completion_tokens:
            self.index.advance(known.slot, ended.completion_tokens, known.room)
        if ended.observed_tokens is not None:
            self._compare(known, ended.tokens, ended.expected_tokens, ended.observed_tokens)

    def _compare(self, known: _Known, tokens: int, expected: int, observed: int) -> None:
        if tokens - expected > _NOTICED_TOKENS:
            found = observed - expected if observed - expected > _NOTICED_TOKENS // 4 else 0
            share = found / (tokens - expected)
            self.home_trust += (share - self.home_trust) * _HOME_TRUST_STEP
        if expected <= _NOTICED_TOKENS:
            return
        if expected - observed <= _NOTICED_TOKENS:
            known.cold_streak = 0
            known.room = min(round(known.room * _ROOM_GAIN), _MOST_ROOM_TOKENS)
            return
        known.room = max(round(known.room * _ROOM_LOSS), _LEAST_ROOM_TOKENS)
        known.cold_streak = 0 if observed else known.cold_streak + 1
        if known.cold_streak == _COLD_STREAK:
            known.cold_streak = 0
            self.index.forget(known.slot)

    def _home_pull(self) -> float:
        """The share of what nobody is known to hold that counts as held at home."""
        if self.several_routers:
            return 1.0
        trust = self.home_trust
        learned = min(trust / _FULL_HOME_TRUST, 1.0) if trust > _LEAST_HOME_TRUST else 0.0
        return max(learned, LEAST_HOME_PULL)

    def _price(self, seats: Sequence[_Seat], now: float) -> float:
        """What a token costs that has to be computed again, in tokens."""
        tokens = 0
        for _, known in seats:
            backlog = known.backlog
            if backlog.tokens:
                backlog.expire(now)
                tokens += backlog.tokens
        seconds = tokens * self._speed.seconds_per_token / len(seats)
        return LOW_PRICE + (HIGH_PRICE - LOW_PRICE) * min(seconds / HIGH_PRICE_SECONDS, 1.0)

    def _adopt(self, fleet: Fleet, now: float) -> None:
        """Take over who is in the fleet: forget those that left, and what those held that are down."""
        joined_at = now if self._known else float("-inf")
        before, self._known = self._known, {}
        for member in fleet.members:
            known = before.get(member.name)
            if known is None or known.in_flight is not member.in_flight:
                known = _Known(member, self.index.join(), joined_at, self._speed)
            else:
                del before[member.name]
            known.weight = member.backend.weight
            if member.state is not known.state:
                known.state = member.state
                if member.state is BackendState.DOWN:
                    self.index.forget(known.slot)
            self._known[member.name] = known
        for known in before.values():
            self.index.leave(known.slot)
        self._by_identity = {known.identity: known for known in self._known.values()}
        self._fleet = fleet
        self._seats, self._seats_of = (), ()

    def _seat(self, members: tuple[Member, ...]) -> Sequence[_Seat]:
        """Put what is known of them next to the members; kept for as long as a fleet gives the same tuple."""
        known_of = self._known
        self._seats = [
            (member, known_of.get(member.backend.name) or self._stranger(member)) for member in members
        ]
        self._seats_of = members
        return self._seats

    def _stranger(self, member: Member) -> _Known:
        """What is known of a backend of which nothing is known, for a view that takes nothing over."""
        return _Known(member, -1, float("-inf"), self._speed)


class AdaptiveVisit:
    """One request at one backend."""

    __slots__ = ("_known", "_number", "_query", "_strategy", "_work", "expected_tokens")

    def __init__(self, strategy: Adaptive, known: _Known, query: Query, expected_tokens: int) -> None:
        self._strategy = strategy
        self._known = known
        self._query = query
        self._work: Work | None = None
        self._number = 0
        self.expected_tokens = expected_tokens

    def sent(self, now: float, *, streamed: bool) -> None:
        """Count the work, and note who has the prompt from now on."""
        known, strategy, chain = self._known, self._strategy, self._query.chain
        assert chain is not None
        missing = chain.tokens - self.expected_tokens
        names = [*chain.names, *[end.name for end in chain.ends]]
        self._work = strategy.begin(known, missing, names, now, streamed=streamed)
        peers = strategy.peers
        if peers is not None:
            self._number = peers.number()
            peers.write(Sent(self._number, now, known.identity, missing, streamed, names))

    def first_token(self, now: float) -> None:
        """The work is done."""
        if self._work is None:
            return
        strategy = self._strategy
        if strategy.peers is not None:
            strategy.follow()  # what else the backend did meanwhile belongs to its speed
            strategy.peers.write(FirstToken(self._number, now))
        self._known.backlog.finish(self._work, now)

    def ended(
        self, now: float, cached_tokens: int | None, prompt_tokens: int | None, completion_tokens: int | None
    ) -> None:
        """Correct what was thought of the backend."""
        known, strategy, chain = self._known, self._strategy, self._query.chain
        assert chain is not None
        tokens = chain.tokens
        observed = None
        if cached_tokens is not None and prompt_tokens:
            observed = round(cached_tokens * tokens / prompt_tokens)
        ended = Ended(
            self._number, now, known.identity, tokens, self.expected_tokens, observed, completion_tokens or 0
        )
        if self._work is not None:
            known.backlog.drop(self._work)
        strategy.end(known, ended)
        if strategy.peers is not None:
            strategy.peers.write(ended)


def _reason(query: Query, cached: int, most: int) -> Reason:
    if query.failed:
        return Reason.FAILOVER
    if most <= query.popular_tokens:
        return Reason.PLACED
    return Reason.AFFINITY if cached * 2 >= most else Reason.OVERFLOW
