"""Fleets and queries for tests of the decision, in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.decision import Query
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Fleet, InFlight, Member
from prefix_router.routing.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prefix_router.routing.decision import Decision, Strategy

VIRTUAL_NODES = 64
"""Enough for tests that do not measure shares, and quick to build."""


def backend_names(*names: str) -> list[BackendName]:
    return [BackendName(name) for name in names]


def numbered(count: int) -> list[BackendName]:
    """Names of `count` backends."""
    return [BackendName(f"10.0.{index // 250}.{index % 250 + 1}:8000") for index in range(count)]


def member(
    name: str,
    in_flight: int = 0,
    *,
    weight: int = 1,
    state: BackendState = BackendState.HEALTHY,
    models: Iterable[str] | None = None,
    draining: bool = False,
    trials: int = 0,
    last_resort: bool = False,
    limit: int | None = None,
) -> Member:
    counter = InFlight()
    counter.count = in_flight
    counter.trials = in_flight if state is BackendState.HALF_OPEN else 0
    counter.trials = trials
    served = None if models is None else frozenset(models)
    backend = Backend(BackendName(name), f"http://{name}", weight, max_in_flight=limit)
    return Member(backend, state, counter, served, draining, last_resort)


def fleet_of(members: Iterable[Member], virtual_nodes: int = VIRTUAL_NODES) -> Fleet:
    members = tuple(members)
    return Fleet(members, ring_over(members, virtual_nodes))


def ring_over(members: Iterable[Member], virtual_nodes: int = VIRTUAL_NODES) -> Ring:
    return Ring({member.name: member.backend.weight for member in members}, virtual_nodes)


def busy(in_flight: Mapping[BackendName, int], virtual_nodes: int = VIRTUAL_NODES) -> Fleet:
    """Healthy backends of weight 1 with these many requests in flight."""
    return fleet_of((member(name, count) for name, count in in_flight.items()), virtual_nodes)


def query(
    key: int | None = None,
    *,
    model: str | None = None,
    draw: int = 0,
    session: str | None = None,
    failed: Iterable[str] = (),
    refused: Iterable[str] = (),
) -> Query:
    return Query(
        key,
        model,
        draw,
        session,
        frozenset(BackendName(name) for name in failed),
        frozenset(BackendName(name) for name in refused),
    )


def key_homed_at(fleet: Fleet, name: str) -> int:
    """A key whose ring owner is the named backend: the smallest of a fixed sequence."""
    return next(key for key in spread_keys(100_000) if fleet.ring.owner(key) == name)


def spread_keys(count: int) -> list[int]:
    """The same `count` keys in every run, spread evenly over all 64 bits (steps of the golden ratio)."""
    return [index * 0x9E3779B97F4A7C15 % 2**64 for index in range(1, count + 1)]


def take(strategy: Strategy, query: Query, fleet: Fleet) -> Decision | None:
    """Decide and take the lease, as the data path does: no decision comes between the two."""
    decision = strategy.choose(query, fleet)
    if decision is not None:
        decision.member.in_flight.count += 1
        decision.member.in_flight.trials += decision.member.state is BackendState.HALF_OPEN
    return decision
