"""A routing decision and the closed set of reasons for it.

`Reason` values are used unchanged as the metric label, the response header and the log field, so that
one word found in one place can be searched for in all others.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from prefix_router.routing.fleet import BackendName, Fleet, Member


class Reason(Enum):
    """Why a backend was chosen."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    AFFINITY = "affinity"
    """The key's home, below its concurrency threshold."""
    OVERFLOW = "overflow"
    """Away from home: home was at its threshold, or answered with back-pressure."""
    SATURATED = "saturated"
    """Home although it is at its threshold: nobody else is clearly less loaded."""
    FAILOVER = "failover"
    """Home cannot be used: the next backend on the ring."""
    KEYLESS = "keyless"
    """Nothing to hash: the least-loaded backend."""
    CONTINUATION = "continuation"
    """The backend that produced the response this request continues."""
    SESSION = "session"
    """Ring owner of the session id (strategy `session`)."""
    LEAST_OUTSTANDING_REQUESTS = "least_outstanding_requests"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"


class Query(NamedTuple):
    """What a strategy is asked.

    key: 64-bit prefix key, or None when the request has none.
    model: the requested model or adapter, or None when the request names none.
    session: the session id of the request, or None.
    draw: a random 64-bit number, so that a strategy needs no randomness of its own.
    failed: backends that this request has already failed on.
    refused: backends that answered this request with back-pressure (503, 429).
    """

    key: int | None
    model: str | None
    draw: int
    session: str | None = None
    failed: frozenset[BackendName] = frozenset()
    refused: frozenset[BackendName] = frozenset()

    def after_failure(self, name: BackendName) -> Query:
        """Return the query for the attempt after `name` failed."""
        return self._replace(failed=self.failed | {name})

    def after_refusal(self, name: BackendName) -> Query:
        """Return the query for the attempt after `name` answered with back-pressure."""
        return self._replace(refused=self.refused | {name})


class Decision(NamedTuple):
    """One chosen backend.

    home: the ring owner of the key among the backends that serve the model, healthy or not; None where
    the strategy has no notion of a home.
    """

    member: Member
    reason: Reason
    home: BackendName | None = None


class Strategy(Protocol):
    """Chooses a backend. Pure but for counters of its own; takes microseconds; never awaits."""

    @property
    def name(self) -> str:
        """The name it has in the configuration."""

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """Return a decision, or None when no backend can take the request now."""
