"""What chooses a replica in a simulation: a strategy of the router, or a baseline to compare it with.

A `Policy` is asked for each request and then told what became of it. Most of the router's own strategies
look at nothing but the fleet and its in-flight counts; one that learns makes a visit with its decision, which
is told what the real router tells it. A policy that keeps an index of prefixes needs to be told, too. A
policy belongs to one router: with several routers each has its own, which knows nothing of the others'
requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.routing.strategies.adaptive import Adaptive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.routing.decision import Decision, Query, Strategy, Visit
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

    def finished(self, routed: RoutedRequest, backend: BackendName, now: float, *, whole: bool) -> None:
        """It has ended on `backend`. Exactly once for each `dispatched`.

        whole: whether its answer came to its end; if not, it was lost there, or refused.
        """

    def emptied(self, backend: BackendName, now: float) -> None:
        """The cache of `backend` is cold: it has restarted, or come back."""


class StrategyPolicy(Policy):
    """A strategy of the router, the very object that runs in production.

    Its visits are told what the router would tell them. Answers come as streams. The counts of a whole answer
    are the engine's, as vLLM reports them when it is started with `--enable-prompt-tokens-details`; of an
    answer that was cut off there are none. A visit is remembered from the decision to the end of its request,
    so there are never more of them than requests in flight.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._followed: dict[RoutedRequest, _Followed] = {}

    @property
    def followed_count(self) -> int:
        """How many requests that have not ended are followed by a visit."""
        return len(self._followed)

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """What the strategy says; the request must then be dispatched."""
        decision = self._strategy.choose(routed.query._replace(now=now), fleet)
        if decision is not None and decision.visit is not None:
            self._followed[routed] = _Followed(decision.visit)
        return decision

    def dispatched(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        """Tell the visit."""
        followed = self._followed.get(routed)
        if followed is not None:
            followed.visit.sent(now, streamed=True)

    def first_token(
        self, routed: RoutedRequest, backend: BackendName, now: float, cached_tokens: int
    ) -> None:
        """Tell the visit; how much was cached it learns at the end, as in life."""
        followed = self._followed.get(routed)
        if followed is not None:
            followed.cached_tokens = cached_tokens
            followed.visit.first_token(now)

    def finished(self, routed: RoutedRequest, backend: BackendName, now: float, *, whole: bool) -> None:
        """Tell the visit, and forget it."""
        followed = self._followed.pop(routed, None)
        if followed is None:
            return
        if whole:
            request = routed.request
            followed.visit.ended(now, followed.cached_tokens, request.prompt_tokens, request.output_tokens)
        else:
            followed.visit.ended(now, None, None, None)

    def emptied(self, backend: BackendName, now: float) -> None:
        """Tell a strategy that knows who holds what.

        A restart takes no time here. In life its connections are refused meanwhile, so that the router knows
        the backend as down within a second, and the strategy forgets what it held.
        """
        if isinstance(self._strategy, Adaptive):
            self._strategy.emptied(backend)


@dataclass(slots=True)
class _Followed:
    """A visit, and what the engine had of the prompt once that is known."""

    visit: Visit
    cached_tokens: int | None = None
