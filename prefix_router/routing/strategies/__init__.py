"""One file for each way of choosing a backend, and the table from configured names to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.least_outstanding_requests import LeastOutstandingRequests
from prefix_router.routing.strategies.prefix_aware import PrefixAware
from prefix_router.routing.strategies.random import Random
from prefix_router.routing.strategies.round_robin import RoundRobin
from prefix_router.routing.strategies.session import Session

if TYPE_CHECKING:
    from prefix_router.routing.decision import Strategy

STRATEGY_NAMES = (
    PrefixAware.name,
    Adaptive.name,
    LeastOutstandingRequests.name,
    RoundRobin.name,
    Random.name,
    Session.name,
)
"""Every strategy that can be configured, the default first."""


def build_strategy(
    name: str,
    concurrency_threshold: int,
    previous: Strategy | None = None,
    *,
    several_routers: bool = False,
) -> Strategy:
    """A strategy object by its configured name.

    concurrency_threshold: in-flight requests per share of weight before a home overflows; only
    `prefix_aware` reads it. several_routers: whether other hosts route to the same backends; only `adaptive`
    reads it. previous: the strategy in use so far; one of the same name is carried on if it has a state worth
    keeping. Raises ValueError for an unknown name, listing those that exist.
    """
    if name == Adaptive.name:
        if isinstance(previous, Adaptive):
            previous.several_routers = several_routers
            return previous
        return Adaptive(several_routers=several_routers)
    if name == PrefixAware.name:
        return PrefixAware(concurrency_threshold)
    for strategy in (LeastOutstandingRequests, RoundRobin, Random, Session):
        if name == strategy.name:
            return previous if isinstance(previous, strategy) else strategy()
    raise ValueError(f"unknown strategy {name!r}; known: {', '.join(STRATEGY_NAMES)}")
