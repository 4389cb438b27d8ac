"""The simulation: what happens to the requests of a workload, to routers and to replicas.

Four things happen: a request comes to a router, a request comes to an engine, an engine's step ends, the
fleet changes. A request is routed the moment it arrives, on what its router knows then, and reaches the
engine after the overhead of router and API server. An idle engine starts a step at once; one that is busy
looks at its queue when its step ends, as vLLM does. A change of the fleet is known to all routers at once.

The engines are those of the stand-in server (`prefix_router.engine`), the strategies those of the router.
Equal requests and plans give equal results in every process. Memory is that of the requests and of the
engines' block tables. Cost: some ten microseconds for each engine step, one for each block of each request.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from prefix_router.engine.request import EngineRequest
from prefix_router.fleetsim.keys import Conversations, name_blocks, prefix_key
from prefix_router.fleetsim.plan import FleetChange
from prefix_router.fleetsim.policies import build_policy
from prefix_router.fleetsim.policy import RoutedRequest
from prefix_router.fleetsim.replica import Replica, Visit, replica_name
from prefix_router.fleetsim.request import check
from prefix_router.fleetsim.result import FleetResult, Outcome
from prefix_router.fleetsim.router import Router
from prefix_router.fleetsim.timeline import Timeline
from prefix_router.routing.decision import Query
from prefix_router.routing.depth import Depth
from prefix_router.routing.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefix_router.engine.counters import EngineCounters
    from prefix_router.fleetsim.plan import FleetEvent, FleetPlan
    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.routing.fleet import BackendName

_PROGRESS_REPORTS = 100


def _stay_silent(_share: float) -> None:
    """Report no progress."""


def simulate(
    requests: Sequence[SimulatedRequest],
    plan: FleetPlan,
    progress: Callable[[float], None] = _stay_silent,
) -> FleetResult:
    """Run `requests`, given in any order, through the fleet of `plan` until the last one has ended.

    progress: is told the share of requests that have ended, about a hundred times. Raises ValueError for a
    request that contradicts itself, an unknown strategy, and a change of a replica that is not there.
    """
    for request in requests:
        check(request)
    return _Simulation(requests, plan, progress).run()


class _Simulation:
    """The state of one run."""

    def __init__(
        self, requests: Sequence[SimulatedRequest], plan: FleetPlan, progress: Callable[[float], None]
    ) -> None:
        self._requests = requests
        self._plan = plan
        self._progress = progress
        self._overhead_seconds = plan.router_overhead_seconds + plan.api_overhead_seconds
        self._timeline = Timeline()
        self._arrivals = iter(
            sorted(range(len(requests)), key=lambda number: requests[number].arrival_seconds)
        )
        self._conversations = Conversations()
        self._outcomes: dict[int, Outcome] = {}
        self._draws = Random(f"{plan.seed} draws")
        self._router_draws = Random(f"{plan.seed} routers")
        self._counters: list[EngineCounters] = []
        self._replicas: dict[BackendName, Replica] = {}
        for number in range(plan.replicas):
            self._start_replica(replica_name(number))
        self._ring = Ring(dict.fromkeys(self._replicas, 1))
        self._routers = [
            Router(
                build_policy(plan.strategy, plan.concurrency_threshold, several_routers=plan.routers > 1),
                self._replicas,
                self._ring,
                Depth() if plan.looks_deeper else None,
            )
            for _ in range(plan.routers)
        ]

    def run(self) -> FleetResult:
        """Let everything happen."""
        for event in sorted(self._plan.events, key=lambda event: event.seconds):
            self._timeline.plan(event.seconds, self._change_fleet, event)
        self._plan_next_arrival()
        self._timeline.run()
        outcomes = tuple(self._outcomes[number] for number in range(len(self._requests)))
        preemptions = sum(counters.preemptions for counters in self._counters)
        return FleetResult(
            self._plan, outcomes, preemptions, sum(router.in_flight for router in self._routers)
        )

    # The way of a request.

    def _plan_next_arrival(self) -> None:
        number = next(self._arrivals, None)
        if number is not None:
            self._timeline.plan(self._requests[number].arrival_seconds, self._arrive, number)

    def _arrive(self, now: float, number: int) -> None:
        """A request comes to one of the routers."""
        self._plan_next_arrival()
        request = self._requests[number]
        router = self._router_draws.choice(self._routers)
        names = name_blocks(request)
        chain = self._conversations.chain(request, names)
        if router.depth is None:
            popular_tokens = 0
            key_tokens = min(self._plan.prefix_tokens, request.prompt_tokens)
            key = prefix_key(request, key_tokens, anchored=self._plan.anchored)
        else:
            key, key_tokens, popular_tokens = router.depth.key(chain, len(self._replicas))
        query = Query(
            key,
            request.model,
            self._draws.getrandbits(64),
            request.session,
            chain=chain,
            key_tokens=key_tokens,
            popular_tokens=popular_tokens,
            now=now,
        )
        self._route(now, number, RoutedRequest(request, query, names), router)

    def _route(self, now: float, number: int, routed: RoutedRequest, router: Router) -> None:
        """A router sends a request to a replica, for the first time or after a failure."""
        decision = router.dispatch(routed, now)
        if decision is None:
            self._end(number, Outcome.of(routed.request, now, failed=True))
            return
        request = routed.request
        job = EngineRequest(request.prompt_tokens, request.output_tokens, routed.names)
        visit = Visit(number, routed, router, self._replicas[decision.member.name], decision.reason, job)
        job.context = visit
        visit.replica.visits[number] = visit
        self._timeline.plan(now + self._overhead_seconds, self._reach_engine, visit)

    def _reach_engine(self, now: float, visit: Visit) -> None:
        """A request comes to the engine of its replica, unless that has died meanwhile."""
        replica = visit.replica
        if not replica.alive:
            return
        try:
            replica.engine.add(visit.job)
        except ValueError:  # It can never fit: vLLM answers with an error at once.
            self._leave(now, visit, failed=True)
            return
        if not replica.stepping:
            self._start_step(now, replica)

    def _leave(self, now: float, visit: Visit, *, failed: bool = False) -> None:
        """A request ends on its replica, for good."""
        self._give_back(now, visit, whole=not failed)
        self._end(
            visit.number,
            Outcome.of(
                visit.routed.request,
                now,
                replica=visit.replica.name,
                cached_tokens=visit.job.cached_tokens,
                first_token_seconds=visit.first_token_seconds,
                reason=visit.reason,
                failed=failed,
            ),
        )

    def _give_back(self, now: float, visit: Visit, *, whole: bool) -> None:
        del visit.replica.visits[visit.number]
        visit.router.finish(visit.routed, visit.replica.name, now, whole=whole)

    def _end(self, number: int, outcome: Outcome) -> None:
        if number in self._outcomes:
            raise RuntimeError(f"request {number} has ended twice")
        self._outcomes[number] = outcome
        ended, total = len(self._outcomes), len(self._requests)
        if ended * _PROGRESS_REPORTS // total > (ended - 1) * _PROGRESS_REPORTS // total:
            self._progress(ended / total)

    # The steps of an engine.

    def _start_step(self, now: float, replica: Replica) -> None:
        seconds = replica.engine.start_step()
        replica.stepping = seconds is not None
        if seconds is not None:
            self._timeline.plan(now + seconds, self._finish_step, replica)

    def _finish_step(self, now: float, replica: Replica) -> None:
        """A step of an engine ends, unless its replica has died meanwhile."""
        if not replica.alive:
            return
        result = replica.engine.finish_step()
        for job in result.first_tokens:
            visit = _visit_of(job)
            visit.first_token_seconds = now
            visit.router.policy.first_token(visit.routed, replica.name, now, job.cached_tokens)
        for job in result.finished:
            self._leave(now, _visit_of(job))
        self._start_step(now, replica)

    # The changes of the fleet.

    def _start_replica(self, name: BackendName) -> None:
        replica = Replica(name, self._plan)
        self._replicas[name] = replica
        self._counters.append(replica.engine.counters)

    def _change_fleet(self, now: float, event: FleetEvent) -> None:
        name = replica_name(event.replica)
        if (name in self._replicas) is (event.change is FleetChange.JOIN):
            raise ValueError(f"{name} cannot {event.change.value} at {event.seconds} s")
        leaving = self._replicas.pop(name, None)
        if event.change is not FleetChange.LEAVE:
            self._start_replica(name)
            for router in self._routers:
                router.policy.emptied(name, now)
        if event.change is FleetChange.RESTART:
            assert leaving is not None
            self._lose(now, leaving)
        else:
            self._ring = self._ring.with_weights(dict.fromkeys(self._replicas, 1))
            for router in self._routers:
                router.change_fleet(self._replicas, self._ring)

    def _lose(self, now: float, replica: Replica) -> None:
        """A replica dies; what it had not begun to answer is sent elsewhere."""
        replica.alive = False
        for visit in list(replica.visits.values()):
            if visit.first_token_seconds is not None:
                self._leave(now, visit, failed=True)
                continue
            self._give_back(now, visit, whole=False)
            visit.routed.query = visit.routed.query.after_failure(replica.name)
            self._route(now, visit.number, visit.routed, visit.router)


def _visit_of(job: EngineRequest) -> Visit:
    visit = job.context
    assert isinstance(visit, Visit)
    return visit
