"""One routing decision of `adaptive` on a chat of 32 KB, 64 backends and an index of 200,000 levels.

Half of the backends hold the system prompt, which is half of the chat; it is popular. new: the other half is
known nowhere. returning: one backend holds all of it. Both are whole decisions: chain, key, choice, and the
request noted as sent. The parts are there to see which of them grew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.micro.case import Case, Run, again, each
from benchmarks.micro.subjects.decision import fleet_over
from benchmarks.micro.subjects.key import prose
from benchmarks.micro.subjects.ring import ring_of
from prefix_router.routing.chain import PrefixChain, prefix_chain
from prefix_router.routing.decision import Decision, Query
from prefix_router.routing.depth import Depth
from prefix_router.routing.fleet import Fleet
from prefix_router.routing.strategies.adaptive import Adaptive

BACKENDS = 64
_LEVELS = 200_000
_HALF = 16_000
"""Characters of each half of the chat."""
_TIMES = 50
_SYSTEM = prose(_HALF, 1)


@dataclass(frozen=True)
class Chat:
    """A system prompt and a question, as a request that has been parsed."""

    question: str
    model: str | None = "llama"
    cache_salt: str | None = None
    affinity_id: str | None = None

    @property
    def prompt(self) -> Chat:
        return self

    def preamble(self) -> Iterable[tuple[str, bytes]]:
        return ()

    def token_ids(self, limit: int) -> Sequence[int] | None:
        return None

    def turns(self) -> Iterator[tuple[str, Sequence[tuple[str, str, bool]]]]:
        yield "system", [("text", _SYSTEM, True)]
        yield "user", [("text", self.question, True)]


def cases() -> list[Case]:
    return [
        Case(f"new chat, {BACKENDS} backends", _TIMES, new_chats),
        Case(f"returning chat, {BACKENDS} backends", _TIMES, returning_chats),
        Case("part: chain", _TIMES, lambda: again(partial(chain_of, Chat(prose(_HALF, 2))), _TIMES)),
        Case("part: key", _TIMES, keys),
        Case(f"part: choice, {BACKENDS} backends", _TIMES, choices),
    ]


def new_chats() -> Run:
    decide = deciding(*router())
    question = prose(_HALF, 2)
    numbers = count()
    return again(lambda: decide(Chat(f"{next(numbers)} {question}")), _TIMES)


def returning_chats() -> Run:
    return each(deciding(*router()), chats())


def keys() -> Run:
    depth = Depth()
    return each(lambda chain: depth.key(chain, BACKENDS), list(map(chain_of, chats())))


def choices() -> Run:
    strategy, fleet = router()
    popular = chain_of(Chat("")).tokens
    queries = [
        Query(chain.names[-1], "llama", draw, chain=chain, popular_tokens=popular, now=1.0)
        for draw, chain in enumerate(map(chain_of, chats()))
    ]
    return each(lambda query: strategy.choose(query, fleet), queries)


def chats() -> list[Chat]:
    question = prose(_HALF, 2)
    return [Chat(f"{number} {question}") for number in range(_TIMES)]


def chain_of(chat: Chat) -> PrefixChain:
    chain = prefix_chain(chat)
    assert chain is not None
    return chain


def router() -> tuple[Adaptive, Fleet]:
    """A strategy that knows what the cases say, and its fleet; each backend runs some requests."""
    ring = ring_of(BACKENDS)
    strategy = Adaptive()
    fleet = fleet_over(ring, {name: number % 7 for number, name in enumerate(ring.weights)})
    system = chain_of(Chat(""))
    strategy.choose(Query(1, "llama", 0, chain=system), fleet)
    draw = random.Random(1)
    for slot in range(BACKENDS):
        if slot % 2:
            strategy.index.record(system.names, slot)
    while len(strategy.index) < _LEVELS:
        strategy.index.record([draw.getrandbits(64) for _ in range(100)], draw.randrange(BACKENDS))
    return strategy, fleet


def deciding(strategy: Adaptive, fleet: Fleet) -> Callable[[Chat], Decision]:
    """All that a request needs to be sent, and its end, so that no work piles up."""
    depth = Depth()
    clock = count(1)

    def decide(chat: Chat) -> Decision:
        now = float(next(clock))
        chain = chain_of(chat)
        key = depth.key(chain, BACKENDS)
        draw = key.value
        query = Query(
            key.value,
            chat.model,
            draw,
            None,
            chain=chain,
            key_tokens=key.tokens,
            popular_tokens=key.popular_tokens,
            now=now,
        )
        decision = strategy.choose(query, fleet)
        assert decision is not None
        assert decision.visit is not None
        decision.visit.sent(now, streamed=True)
        decision.visit.ended(now, None, None, None)
        return decision

    for chat in chats():
        decide(chat)
    return decide
