"""What chooses a replica in a simulation: a strategy of the router, or a baseline to compare it with.

A `Policy` is asked for each request and then told what became of it. The router's own strategies look at
nothing but the fleet and its in-flight counts, so they ignore what they are told; a policy that keeps an
index of prefixes, or learns how fast a replica is, needs it. A policy belongs to one router: with several
routers each has its own, which knows nothing of the others' requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.routing.decision import Decision, Query, Strategy
    from prefix_router.routing.fleet import BackendName, Fleet


@dataclass(slots=True, eq=False)
class RoutedRequest:
    """A request as a policy sees it. Compared by identity; the same object in all calls about one request.

    query: what a strategy of the router is asked; after a failure it names who failed.
    names: the chained names of the full blocks of its prompt (see `keys`): equal names, equal beginnings.
    """

    request: SimulatedRequest
    query: Query
    names: Sequence[int]


class Policy:
    """Chooses. `now` is simulated seconds; deterministic; no clock and no randomness but the query's draw."""

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """The member for a request; None when nobody can take it. Called again after a failure."""
        raise NotImplementedError

    def dispatched(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        """The request was sent to `backend`."""

    def first_token(
        self, routed: RoutedRequest, backend: BackendName, now: float, cached_tokens: int
    ) -> None:
        """Its first token came from `backend`, which had `cached_tokens` of its prompt."""

    def finished(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        """It has ended on `backend`, or was lost there. Exactly once for each `dispatched`."""

    def emptied(self, backend: BackendName, now: float) -> None:
        """The cache of `backend` is cold: it has restarted, or come back."""


class StrategyPolicy(Policy):
    """A strategy of the router, the very object that runs in production."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """What the strategy says."""
        return self._strategy.choose(routed.query, fleet)
