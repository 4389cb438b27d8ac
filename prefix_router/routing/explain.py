"""What a strategy would do with a query, and what it would do if the home were full or down.

The what-if answers come from the same strategy on a fleet that differs in that one fact, so they cannot
disagree with what happens. Nothing that is asked here changes a counter of the running strategy.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice

from prefix_router.routing.decision import Decision, Query, Strategy
from prefix_router.routing.fleet import BackendName, BackendState, Fleet, InFlight, Member

RING_ORDER_LENGTH = 16
"""How many backends of the ring order are listed."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and its neighbours.

    ring_order: serving backends from the key's home on; empty without a key.
    if_home_full, if_home_down: the decision then; None when the decision has no home, or nobody is left.
    """

    decision: Decision | None
    ring_order: tuple[BackendName, ...]
    if_home_full: Decision | None
    if_home_down: Decision | None


def explain(query: Query, fleet: Fleet, strategy: Strategy, concurrency_threshold: int) -> Explanation:
    """Explain what `strategy` does with `query` on `fleet`. O(backends)."""
    frozen = deepcopy(strategy)
    decision = frozen.choose(query, fleet)
    order: tuple[BackendName, ...] = ()
    if query.key is not None:
        serving = (name for name in fleet.ring.successors(query.key) if _serves(fleet, name, query.model))
        order = tuple(BackendName(name) for name in islice(serving, RING_ORDER_LENGTH))
    home = decision.home if decision is not None else None
    if home is None:
        return Explanation(decision, order, None, None)
    member = fleet.by_name[home]
    full = replace(member, in_flight=_count(concurrency_threshold * member.backend.weight))
    down = replace(member, state=BackendState.DOWN)
    return Explanation(
        decision,
        order,
        deepcopy(strategy).choose(query, _with(fleet, full)),
        deepcopy(strategy).choose(query, _with(fleet, down)),
    )


def _serves(fleet: Fleet, name: str, model: str | None) -> bool:
    return fleet.by_name[BackendName(name)].serves(model)


def _count(requests: int) -> InFlight:
    in_flight = InFlight()
    in_flight.count = requests
    return in_flight


def _with(fleet: Fleet, changed: Member) -> Fleet:
    return Fleet(
        tuple(changed if member.name == changed.name else member for member in fleet.members), fleet.ring
    )
