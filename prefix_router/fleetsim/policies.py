"""Every policy that can be simulated, by name: the router's strategies and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_router.fleetsim.baselines.bounded_ring import BoundedRing
from prefix_router.fleetsim.baselines.plain_ring import PlainRing
from prefix_router.fleetsim.baselines.radix_tree import RadixTree
from prefix_router.fleetsim.baselines.smg_prefix_hash import SmgPrefixHash
from prefix_router.fleetsim.policy import StrategyPolicy
from prefix_router.routing.strategies import STRATEGY_NAMES, build_strategy
from prefix_router.routing.strategies.prefix_aware import PrefixAware

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prefix_router.fleetsim.policy import Policy

_BASELINES: Mapping[str, Callable[[], Policy]] = {
    baseline.name: baseline for baseline in (PlainRing, BoundedRing, SmgPrefixHash, RadixTree)
}

BASELINE_NAMES = tuple(_BASELINES)
"""The baselines, which only exist here."""

POLICY_NAMES = (*STRATEGY_NAMES, *BASELINE_NAMES)
"""Every name that `build_policy` knows."""

KEYED_NAMES = (PrefixAware.name, PlainRing.name, BoundedRing.name)
"""Those to which it matters where the plan ends a prefix key."""


def build_policy(name: str, concurrency_threshold: int, *, several_routers: bool = False) -> Policy:
    """A new policy. Raises ValueError for an unknown name, listing those that exist.

    several_routers: whether other routers send to the same replicas, for a strategy that wants to know.
    """
    if name in _BASELINES:
        return _BASELINES[name]()
    if name in STRATEGY_NAMES:
        return StrategyPolicy(build_strategy(name, concurrency_threshold, several_routers=several_routers))
    raise ValueError(f"unknown strategy {name!r}; known: {', '.join(POLICY_NAMES)}")
