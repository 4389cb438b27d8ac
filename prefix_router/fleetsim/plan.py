"""What a simulation runs: the fleet, the routers in front of it, and what happens to the fleet meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.routing.strategies.adaptive import Adaptive


class FleetChange(Enum):
    """What can happen to a replica."""

    JOIN = "join"
    """It is new in the fleet, with a cold cache."""
    LEAVE = "leave"
    """It gets no more requests and finishes those it has."""
    RESTART = "restart"
    """It loses its requests and its cache, and is back at once. A request that has had no token yet is sent
    to another replica; one that has ends as failed: an answer that has begun cannot be begun again."""


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """A change at a time. replica: its number; those that are there from the start are 0, 1, 2, …"""

    seconds: float
    change: FleetChange
    replica: int


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """One run. Raises ValueError for values that make no sense; the strategy's name is checked later.

    strategy: a strategy of the router or a baseline; `policies.POLICY_NAMES` lists them.
    replicas: how many there are at the start. profile: the engines' cost profile, see `engine.cost.PROFILES`.
    kv_tokens: the size of an engine's KV cache in tokens; None for the profile's.
    routers: independent routers, each of which knows only the requests it sent itself. A request comes to one
        of them at random.
    events: changes of the fleet; order does not matter. concurrency_threshold: of `prefix_aware`, in requests
        in flight.
    prefix_tokens: N, the length of a prefix key in tokens. depth_auto: whether keys look deeper the more
        popular they are, instead of at N tokens, see `routing.depth`; always so for `adaptive`.
    anchored: whether a key ends with the first user turn when that comes before N.
    seed: varies everything that is drawn at random.
    router_overhead_seconds, api_overhead_seconds: what a request spends in the router and in the API server
        of a replica, before the engine sees it.
    """

    strategy: str
    replicas: int = 7
    profile: str = DEFAULT_PROFILE
    kv_tokens: int | None = None
    routers: int = 1
    events: tuple[FleetEvent, ...] = ()
    concurrency_threshold: int = 64
    prefix_tokens: int = 1024
    depth_auto: bool = False
    anchored: bool = True
    seed: int = 0
    router_overhead_seconds: float = 0.0
    api_overhead_seconds: float = 0.015

    @property
    def looks_deeper(self) -> bool:
        """Whether routers choose the depth of each key."""
        return self.depth_auto or self.strategy == Adaptive.name

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"unknown profile {self.profile!r}; known: {', '.join(PROFILES)}")
        for name in ("replicas", "routers", "concurrency_threshold", "prefix_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("router_overhead_seconds", "api_overhead_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative, got {getattr(self, name)}")
