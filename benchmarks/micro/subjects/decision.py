"""One routing decision of `prefix_aware`, by the way it takes.

home free: home is healthy and below its threshold. home full: at its threshold, another clearly less loaded.
all full: everybody is at the threshold. home down: the next on the ring takes it. keyless: the least loaded.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice, repeat

from benchmarks.micro.case import Case, Run, each
from benchmarks.micro.subjects.ring import BACKEND_COUNTS, random_keys, ring_of
from prefix_router.routing.decision import Query, Reason
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring
from prefix_router.routing.strategies.prefix_aware import PrefixAware

_THRESHOLD = 64
_FAST = 500
_SLOW = 50
"""Operations of what is O(backends)."""


def cases() -> list[Case]:
    measured = []
    for backends in BACKEND_COUNTS:
        measured += [
            Case(f"home free, {backends} backends", _FAST, partial(home_free, backends)),
            Case(f"home full, {backends} backends", _SLOW, partial(home_full, backends)),
            Case(f"all full, {backends} backends", _SLOW, partial(all_full, backends)),
            Case(f"home down, {backends} backends", _SLOW, partial(home_down, backends)),
            Case(f"keyless, {backends} backends", _SLOW, partial(keyless, backends)),
        ]
    return measured


def home_free(backends: int) -> Run:
    return deciding(fleet_over(ring_of(backends), {}), random_keys(_FAST), Reason.AFFINITY)


def home_full(backends: int) -> Run:
    ring = ring_of(backends)
    home = first_of(ring)
    return deciding(fleet_over(ring, {home: _THRESHOLD}), keys_at(home, ring), Reason.OVERFLOW)


def all_full(backends: int) -> Run:
    ring = ring_of(backends)
    everybody = dict.fromkeys(ring.weights, _THRESHOLD)
    return deciding(fleet_over(ring, everybody), random_keys(_SLOW), Reason.SATURATED)


def home_down(backends: int) -> Run:
    ring = ring_of(backends)
    home = first_of(ring)
    return deciding(fleet_over(ring, {}, down=home), keys_at(home, ring), Reason.FAILOVER)


def keyless(backends: int) -> Run:
    return deciding(fleet_over(ring_of(backends), {}), [None] * _SLOW, Reason.KEYLESS)


def deciding(fleet: Fleet, keys: Iterable[int | None], reason: Reason) -> Run:
    """Return a run that decides for each key; all must be decided for this reason."""
    strategy = PrefixAware(_THRESHOLD)
    queries = [Query(key, None, 12345 if key is None else key) for key in keys]
    decisions = [strategy.choose(query, fleet) for query in queries]
    assert all(decision is not None and decision.reason is reason for decision in decisions)
    return each(lambda query: strategy.choose(query, fleet), queries)


def fleet_over(ring: Ring, in_flight: Mapping[BackendName, int], down: BackendName | None = None) -> Fleet:
    """Backends with these many requests in flight (0 where not said), one of them down or none."""
    members = []
    for name in ring.weights:
        counter = InFlight()
        counter.count = in_flight.get(name, 0)
        state = BackendState.DOWN if name == down else BackendState.HEALTHY
        members.append(Member(Backend(name, f"http://{name}"), state, counter))
    return Fleet(tuple(members), ring)


def first_of(ring: Ring) -> BackendName:
    return next(iter(ring.weights))


def keys_at(home: BackendName, ring: Ring) -> list[int]:
    """As many keys of this home as a slow case needs."""
    draw = random.Random(1)
    drawn = (draw.getrandbits(64) for _ in repeat(None))
    return list(islice((key for key in drawn if ring.owner(key) == home), _SLOW))
