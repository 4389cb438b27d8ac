"""The model's side: the requests that a real vLLM has served, once more through the engine model. Pure.

The twin is told prompts and answers, because what is generated is part of the next prompt and fills blocks;
it is not told what was cached, nor who served a request. A group is added as the real engine gets it: its
first request, and the others while the first step runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.validation.served import Predicted
from prefix_router.engine.block_hash import hash_blocks, pack_token_ids
from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.engine.engine import Engine
from prefix_router.engine.limits import EngineLimits
from prefix_router.engine.request import EngineRequest
from prefix_router.fleetsim.policy import RoutedRequest, StrategyPolicy
from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.router import Router
from prefix_router.routing.decision import Query
from prefix_router.routing.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.validation.served import Served
    from prefix_router.engine.counters import EngineCounters
    from prefix_router.routing.decision import Strategy
    from prefix_router.routing.fleet import BackendName


class EngineTwin:
    """The engine model with the cache and the limits of a replica."""

    def __init__(self, blocks: int, limits: EngineLimits) -> None:
        # What a step costs decides nothing here: any profile will do.
        self._engine = Engine(PROFILES[DEFAULT_PROFILE], limits, kv_tokens=blocks * limits.block_size)

    @property
    def counters(self) -> EngineCounters:
        """What the engine has counted."""
        return self._engine.counters

    def serve(self, group: Sequence[Served]) -> list[Predicted]:
        """Serve a group of requests until all have ended."""
        engine = self._engine
        first, *others = jobs = [self._job(served) for served in group]
        engine.add(first)
        engine.start_step()
        for job in others:
            engine.add(job)
        engine.finish_step()
        while engine.step() is not None:
            pass
        return [Predicted(job.cached_tokens) for job in jobs]

    def _job(self, served: Served) -> EngineRequest:
        tokens = pack_token_ids(served.prompt + served.answer)
        hashes = hash_blocks(tokens, self._engine.limits.block_size)
        return EngineRequest(len(served.prompt), len(served.answer), hashes)


class FleetTwin:
    """Engine models behind a strategy of the router, for requests that come one after the other.

    It routes with the simulator's own router, so that what is compared is what simulations use. engines: by
    the names of their replicas. key_of: the key that the real router makes of a prompt.
    """

    def __init__(
        self,
        engines: Mapping[BackendName, EngineTwin],
        strategy: Strategy,
        key_of: Callable[[Sequence[int]], int | None],
        model: str | None = None,
    ) -> None:
        self._engines = engines
        self._router = Router(StrategyPolicy(strategy), engines, Ring(dict.fromkeys(engines, 1)))
        self._key_of = key_of
        self._model = model

    def serve(self, served: Served) -> Predicted:
        """Choose a replica for a request and serve it there. Raises RuntimeError when none is chosen."""
        # The draw is one of none: a strategy that draws cannot be compared request by request.
        query = Query(self._key_of(served.prompt), self._model, draw=0)
        routed = RoutedRequest(_shape(served), query, ())
        decision = self._router.dispatch(routed, now=served.number)
        if decision is None:
            raise RuntimeError(f"no replica for request {served.number}, and all are well")
        name = decision.member.name
        (predicted,) = self._engines[name].serve([served])
        self._router.finish(routed, name, now=served.number, whole=True)
        return Predicted(predicted.cached_tokens, name)


def _shape(served: Served) -> SimulatedRequest:
    """The request as the simulator knows requests; what its blocks hold is the engine's business here."""
    return SimulatedRequest(float(served.number), (), len(served.prompt), len(served.answer))
