"""The fleet as one decision sees it: backends, their states and their in-flight counts.

A `Fleet` is an immutable snapshot: membership, states and models never change under a decision, and
a reader needs one attribute read to get all of it (no lock, no copy). The one thing in it that moves
is `InFlight`, the live count of leases, because "how busy is it" must be true to the microsecond and
must survive every new snapshot: a lease gives back to the very object it took from, even when that
backend has meanwhile left the fleet or come back under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NewType

from prefix_router.routing.ring import Ring

BackendName = NewType("BackendName", str)


class BackendState(Enum):
    """What the health table says of a backend. The values are metric labels and `/status` words."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    STARTING = "starting"
    """Configured, no evidence yet: gets traffic, a failure fails over."""
    HEALTHY = "healthy"
    EJECTED = "ejected"
    """Answers, but badly or too late: no traffic, unless too much of the fleet would be ejected."""
    DOWN = "down"
    """Refuses connections or cannot be reached: no traffic, however few others are left."""
    HALF_OPEN = "half_open"
    """Coming back: one request at a time until it has proven itself."""
    WARMING = "warming"
    """Has joined a running fleet and not shown yet that it can work: no traffic while others can take it."""


_IN_SERVICE = frozenset({BackendState.HEALTHY, BackendState.STARTING})
_BETTER_THAN = {
    BackendState.HALF_OPEN: _IN_SERVICE,
    BackendState.EJECTED: _IN_SERVICE | {BackendState.HALF_OPEN},
    BackendState.WARMING: _IN_SERVICE | {BackendState.HALF_OPEN},
}
"""The states that make a backend in one of these no last resort."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One vLLM endpoint.

    `url` has no trailing slash and may carry a path prefix; `weight` is a whole number of shares of
    the ring (1 = one share). `models` are the models it is declared to serve; None means "ask it".
    `max_in_flight` is how many requests it gets at a time, None for no limit.
    `server_name` is the name that its certificate must have, None for the host of its URL. `authorization` is
    what it is sent as `Authorization`, None for whatever the client sends; it is a secret.
    """

    name: BackendName
    url: str
    weight: int = 1
    models: frozenset[str] | None = None
    max_in_flight: int | None = None
    server_name: str | None = None
    authorization: str | None = field(default=None, repr=False)


class InFlight:
    """The live number of leases on one backend. Changed only by `proxy.lease`, and only through the methods.

    trials: how many of them were taken while the backend was half-open and have not proven anything yet.
    Several processes that serve one port count together: `workers.shared_counts` has the same class over
    shared memory.
    """

    __slots__ = ("count", "trials")

    def __init__(self) -> None:
        self.count = 0
        self.trials = 0

    def take(self) -> None:
        """Count one lease more."""
        self.count += 1

    def give(self) -> None:
        """Count one lease less."""
        self.count -= 1

    def claim(self, since: float | None) -> None:
        """Say since when (seconds, monotonic) somebody waits here for the backend; None for nobody.

        Only other processes want to know.
        """

    def claimed(self) -> bool:
        """Whether a free place belongs to another process, where somebody has waited for longer."""
        return False

    def begin_trial(self) -> None:
        """Count one trial more."""
        self.trials += 1

    def end_trial(self) -> None:
        """Count one trial less."""
        self.trials -= 1

    def __repr__(self) -> str:
        return f"InFlight({self.count})"


@dataclass(frozen=True, slots=True)
class Member:
    """A backend in a snapshot.

    `models` is what its `/v1/models` lists, or None while that is not known: then it may serve anything.
    `last_resort` says that no other backend in a better state could stand in for it: then a doubtful one is
    better than an error.
    """

    backend: Backend
    state: BackendState
    in_flight: InFlight
    models: frozenset[str] | None = None
    draining: bool = False
    last_resort: bool = False
    _open: bool = field(init=False, repr=False, compare=False)
    """In service whatever its counts are: worked out once, because it is asked for every request."""

    def __post_init__(self) -> None:
        good_enough = self.state in _IN_SERVICE or (self.last_resort and self.state in _BETTER_THAN)
        object.__setattr__(self, "_open", good_enough and not self.draining)

    @property
    def name(self) -> BackendName:
        """The backend's name."""
        return self.backend.name

    def serves(self, model: str | None) -> bool:
        """Whether a request for `model` may go here; a request that names no model may go anywhere."""
        return model is None or self.models is None or model in self.models

    def full(self) -> bool:
        """Whether it has as many requests as it may get at a time, or, after a reload, more.

        A place that somebody in another process has waited for longer counts as taken.
        """
        limit = self.backend.max_in_flight
        return limit is not None and (self.in_flight.count >= limit or self.in_flight.claimed())

    def in_service(self) -> bool:
        """Whether one more request could go here if it were not full."""
        if self._open:
            return True
        return self.state is BackendState.HALF_OPEN and not self.draining and self.in_flight.trials == 0

    def admits(self) -> bool:
        """Whether one more request may go here now."""
        if self._open:
            return self.backend.max_in_flight is None or not self.full()
        return self.in_service() and not self.full()

    def settled(self) -> bool:
        """Whether `admits` gives the same answer whatever its counts are, as long as this snapshot lives."""
        if self._open:
            return self.backend.max_in_flight is None
        return self.draining or self.state is not BackendState.HALF_OPEN


class _Case(Enum):
    """Stands for a model in `Fleet._serving`."""

    UNKNOWN_MODEL = "unknown_model"


@dataclass(frozen=True)
class Fleet:
    """One immutable snapshot of all backends, in configuration order, and the ring over their names."""

    members: tuple[Member, ...]
    ring: Ring
    by_name: Mapping[BackendName, Member] = field(init=False, repr=False)
    _serving: dict[str | _Case | None, tuple[Member, ...]] = field(init=False, repr=False, compare=False)
    """Who takes requests for a model, where counts have no say in it. One entry for all unknown models."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {member.name: member for member in self.members})
        object.__setattr__(self, "_serving", {})

    @cached_property
    def _settled(self) -> tuple[Member, ...] | None:
        """The members that take requests; None where counts have a say in it."""
        if not all(member.settled() for member in self.members):
            return None
        return tuple(member for member in self.members if member.admits())

    @cached_property
    def _models_all_known(self) -> bool:
        return all(member.models is not None for member in self.members)

    @cached_property
    def _known_models(self) -> frozenset[str]:
        return frozenset().union(*(member.models for member in self.members if member.models is not None))

    def knows_no(self, model: str | None) -> bool:
        """Whether it is certain that no backend serves `model`: all lists are known and none has it."""
        return (
            model is not None
            and bool(self.members)
            and self._models_all_known
            and model not in self._known_models
        )

    def in_service(self) -> bool:
        """Whether some backend could take a request, now or when it is no longer full."""
        return any(member.in_service() for member in self.members)

    def routable(
        self, model: str | None, excluded: frozenset[BackendName] = frozenset()
    ) -> tuple[Member, ...]:
        """Members that serve `model`, admit a request now and are not `excluded`, in configuration order.

        O(members), or O(1) in the common case: nobody is excluded, half-open or limited in number. The order
        is stable, so that equal fleets give equal answers everywhere.
        """
        if not excluded:
            case = model if model is None or model in self._known_models else _Case.UNKNOWN_MODEL
            found = self._serving.get(case)
            if found is not None:
                return found
            if self._settled is not None:
                serving = tuple(member for member in self._settled if member.serves(model))
                # Equal tuples are one, so that who keeps something for each tuple has it once for all models.
                self._serving[case] = self._settled if len(serving) == len(self._settled) else serving
                return self._serving[case]
        return tuple(
            member
            for member in self.members
            if member.admits() and member.serves(model) and member.name not in excluded
        )

    def home(self, key: int, model: str | None) -> Member | None:
        """The first member on the ring from `key` that serves `model`, in whatever state it is."""
        name = self.ring.owner(key)
        if name is None:
            return None
        owner = self.by_name[name]
        return owner if owner.serves(model) else next(self.successors(key, model), None)

    def successors(self, key: int, model: str | None) -> Iterator[Member]:
        """Members that serve `model`, in ring order from `key`, in whatever state they are. Lazy.

        The first one is the key's home.
        """
        for name in self.ring.successors(key):
            member = self.by_name[name]
            if member.serves(model):
                yield member


def with_last_resorts(members: Sequence[Member]) -> list[Member]:
    """Mark the members whose models nobody in a better state serves.

    So a fleet of which nothing but doubtful backends is left goes on working, and a backend that alone
    serves an adapter is used while it recovers. O(members), times the members that are not in service.
    """
    return [
        replace(member, last_resort=not any(_stands_in(other, member) for other in members))
        if member.state in _BETTER_THAN
        else member
        for member in members
    ]


def _stands_in(other: Member, member: Member) -> bool:
    if other is member or other.draining or other.state not in _BETTER_THAN[member.state]:
        return False
    if other.models is None or member.models is None:
        return True
    return member.models <= other.models
