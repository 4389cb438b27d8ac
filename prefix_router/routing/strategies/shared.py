"""What workers that decide side by side tell each other, so that each knows what all have sent where.

A strategy that learns from its own decisions knows only a part when several processes serve one port: the
same prompt would go to as many backends as there are workers, and each would see a part of the work that
waits. So each worker writes notes of what it does, and takes over those of the others just before it decides.
Notes may be late or get lost. Whoever keeps something because of a note must be able to do without the next
one; `Gone` says that some may be missing.

How notes travel is not known here: `workers.journal` is a `Peers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.routing.backlog import Backlog, Work
    from prefix_router.routing.fleet import Backend

MOST_PENDING = 16_384
"""Requests of one worker that are remembered until their first token."""


class Sent(NamedTuple):
    """A request went to a backend.

    visit: its number, unique for its worker. at: seconds of the host's monotonic clock. backend: see
    `identity`. missing_tokens: what the backend has to compute. streamed: as in `Visit.sent`. names: of the
    levels and the ends that the backend has from now on.
    """

    visit: int
    at: float
    backend: int
    missing_tokens: int
    streamed: bool
    names: Sequence[int]


class FirstToken(NamedTuple):
    """Its first token has come."""

    visit: int
    at: float


class Ended(NamedTuple):
    """It has ended.

    tokens: of its prompt. expected_tokens, observed_tokens: how many of those the backend should have had
    cached, and had, None if nobody knows. completion_tokens: of the answer.
    """

    visit: int
    at: float
    backend: int
    tokens: int
    expected_tokens: int
    observed_tokens: int | None
    completion_tokens: int


class Gone(NamedTuple):
    """Of what a worker has sent so far perhaps nothing more is heard: it has died, or notes were lost."""

    at: float


Note: TypeAlias = Sent | FirstToken | Ended | Gone


class Peers(Protocol):
    """The other workers. Nothing here waits or raises."""

    def number(self) -> int:
        """A number for a visit that no other visit of this worker has."""

    def write(self, note: Note) -> None:
        """Tell the others, some time soon."""

    def read(self) -> Iterable[tuple[int, Note]]:
        """What the others did since the last time, and who (a number): in order of time, and bounded."""


class Pending:
    """The work of other workers' requests that have not shown a first token. Bounded; O(1)."""

    def __init__(self, most: int = MOST_PENDING) -> None:
        """most: how many are kept of each worker; beyond, the oldest one is left to expire by itself."""
        self._most = most
        self._of: dict[int, dict[int, tuple[Backlog, Work]]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._of.values()))

    def add(self, worker: int, visit: int, backlog: Backlog, work: Work) -> None:
        """Remember the work of one visit."""
        works = self._of.setdefault(worker, {})
        works[visit] = backlog, work
        if len(works) > self._most:
            del works[next(iter(works))]

    def finish(self, worker: int, visit: int, at: float) -> None:
        """Its first token has come."""
        found = self._of.get(worker, {}).pop(visit, None)
        if found is not None:
            found[0].finish(found[1], at)

    def drop(self, worker: int, visit: int) -> None:
        """It has ended. Does nothing when its first token was seen."""
        found = self._of.get(worker, {}).pop(visit, None)
        if found is not None:
            found[0].drop(found[1])

    def drop_all(self, worker: int) -> None:
        """Nothing more is heard of any of them."""
        for backlog, work in self._of.pop(worker, {}).values():
            backlog.drop(work)


def identity(backend: Backend) -> int:
    """A number by which all workers know a backend.

    A hash of its name and its URL, because that means the same in every process and at any time: a row of the
    shared counts goes to another backend some day, and a note may be read later than that.
    """
    return xxh3_64_intdigest(f"{backend.name}\0{backend.url}".encode())
