"""Lookups on the ring: the owner of a key, the first two from it on, all of them."""

from __future__ import annotations

import random
from collections import deque
from functools import cache, partial

from benchmarks.micro.case import Case, Run, each
from prefix_router.routing.fleet import BackendName
from prefix_router.routing.ring import Ring

BACKEND_COUNTS = (8, 64, 256)
_LOOKUPS = 500
_WALKS = 20


def cases() -> list[Case]:
    measured = []
    for backends in BACKEND_COUNTS:
        measured += [
            Case(f"owner, {backends} backends", _LOOKUPS, partial(owners, backends)),
            Case(f"first two successors, {backends} backends", _LOOKUPS, partial(pairs, backends)),
            Case(f"all successors, {backends} backends", _WALKS, partial(walks, backends)),
        ]
    return measured


@cache
def ring_of(backends: int) -> Ring:
    return Ring({BackendName(f"10.0.{index // 250}.{index % 250}:8000"): 1 for index in range(backends)})


def random_keys(count: int) -> list[int]:
    draw = random.Random(count)
    return [draw.getrandbits(64) for _ in range(count)]


def owners(backends: int) -> Run:
    return each(ring_of(backends).owner, random_keys(_LOOKUPS))


def pairs(backends: int) -> Run:
    return each(partial(two_of, ring_of(backends)), random_keys(_LOOKUPS))


def walks(backends: int) -> Run:
    return each(partial(all_of, ring_of(backends)), random_keys(_WALKS))


def two_of(ring: Ring, key: int) -> tuple[BackendName, BackendName]:
    walk = ring.successors(key)
    return next(walk), next(walk)


def all_of(ring: Ring, key: int) -> None:
    deque(ring.successors(key), maxlen=0)
