"""One simulated replica: an engine, the requests it has, and whether it still lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.engine.cost import PROFILES
from prefix_router.engine.engine import Engine
from prefix_router.routing.fleet import BackendName

if TYPE_CHECKING:
    from prefix_router.engine.request import EngineRequest
    from prefix_router.fleetsim.plan import FleetPlan
    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.fleetsim.router import Router
    from prefix_router.routing.decision import Reason


class Replica:
    """A replica from its start to its end; after a restart there is a new one under the same name.

    visits: the requests that were sent to it and have not ended, by number, in the order they were sent.
    stepping: whether its engine is in the middle of a step.
    """

    def __init__(self, name: BackendName, plan: FleetPlan) -> None:
        self.name = name
        self.engine = Engine(PROFILES[plan.profile], kv_tokens=plan.kv_tokens)
        self.visits: dict[int, Visit] = {}
        self.alive = True
        self.stepping = False


@dataclass(slots=True, eq=False)
class Visit:
    """A request on a replica. number: its place in the workload. job: what the engine has of it."""

    number: int
    routed: RoutedRequest
    router: Router
    replica: Replica
    reason: Reason
    job: EngineRequest
    first_token_seconds: float | None = None


def replica_name(number: int) -> BackendName:
    """The name of a replica by its number."""
    return BackendName(f"replica-{number}")
