"""A routing decision and the closed set of reasons for it.

`Reason` values are used unchanged as the metric label, the response header and the log field, so that
one word found in one place can be searched for in all others.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefix_router.routing.chain import PrefixChain
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
    PLACED = "placed"
    """Nobody holds more of the prompt than what is popular: where it adds least work (`adaptive`)."""
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
    chain: the hashes of ever longer beginnings of the prompt; None when the request has none, or when nothing
        that is configured looks at it.
    key_tokens: how many tokens of the prompt the key covers, where the chain is known.
    popular_tokens: how many tokens of the prompt are a popular beginning, where the chain is known.
    held: the share of the prompt, 0 to 1, that backends hold, for those that say so themselves.
    now: the time of the decision, in seconds of a monotonic clock.
    """

    key: int | None
    model: str | None
    draw: int
    session: str | None = None
    failed: frozenset[BackendName] = frozenset()
    refused: frozenset[BackendName] = frozenset()
    chain: PrefixChain | None = None
    key_tokens: int = 0
    popular_tokens: int = 0
    held: Mapping[BackendName, float] | None = None
    now: float = 0.0

    def after_failure(self, name: BackendName) -> Query:
        """Return the query for the attempt after `name` failed."""
        return self._replace(failed=self.failed | {name})

    def after_refusal(self, name: BackendName) -> Query:
        """Return the query for the attempt after `name` answered with back-pressure."""
        return self._replace(refused=self.refused | {name})


class Visit(Protocol):
    """One request at one backend, as a strategy that learns follows it.

    The strategy makes it with its decision. Whoever acts on the decision tells it what happens: `sent` first,
    `ended` last and once. expected_tokens: how many tokens of the prompt the backend should have cached.
    """

    @property
    def expected_tokens(self) -> int:
        """Of the prompt, in the tokens of `query.chain`."""

    def sent(self, now: float, *, streamed: bool) -> None:
        """The request goes to the backend. streamed: whether its answer comes as a stream."""

    def first_token(self, now: float) -> None:
        """The first token of the answer has come."""

    def ended(
        self, now: float, cached_tokens: int | None, prompt_tokens: int | None, completion_tokens: int | None
    ) -> None:
        """The answer has ended, or there will be none. The counts are the backend's own, None if unknown."""


class Decision(NamedTuple):
    """One chosen backend.

    home: the ring owner of the key among the backends that serve the model, healthy or not; None where
    the strategy has no notion of a home. visit: what wants to know how it goes on; None if nobody does.
    """

    member: Member
    reason: Reason
    home: BackendName | None = None
    visit: Visit | None = None


class Strategy(Protocol):
    """Chooses a backend. Pure but for counters of its own; takes microseconds; never awaits."""

    @property
    def name(self) -> str:
        """The name it has in the configuration."""

    def choose(self, query: Query, fleet: Fleet) -> Decision | None:
        """Return a decision, or None when no backend can take the request now."""
