"""The prefill work that one backend has before it, and how fast it does such work.

Work is counted in prompt tokens to be computed. A request adds what its backend does not hold when it is sent
there, and takes it away again with its first token. What comes without a stream shows no first token, so its
work is taken away when it should be done, and any request's at some time: a lost signal must not weigh
forever.

The speed is learned while a backend is busy: from when it gets work and had none, to when it has none left
or has done `_PERIOD_TOKENS` of it, it does so many tokens in so many seconds. Both are summed, the older ones
counting less and less. Periods with little work are left out, because their time is spent on other things. A
single request's wait would not do: it says more of how the others' work was spread over time than of speed,
and whoever seems fast gets more, and seems faster still. For the same reason a backend counts as fast as the
whole fleet unless it differs clearly.

Cost: O(1), but for expired work, each of which is looked at once. No clock: `now` comes in.
"""

from __future__ import annotations

from collections import deque

ASSUMED_TOKENS_PER_SECOND = 20_000.0
"""Before anything was observed."""

_PRIOR_TOKENS = 5_000.0
_FLEET_MEMORY_TOKENS = 2_000_000.0
_MEMORY_TOKENS = 500_000.0
_PERIOD_TOKENS = 20_000
_LEAST_LEARNED_TOKENS = 1024
_CLEARLY = 2.0
_PATIENCE = 4.0
_PATIENCE_SECONDS = 2.0


class Work:
    """The work of one request. tokens: to be computed. expires: when it is taken away if nothing is heard."""

    __slots__ = ("done", "expires", "tokens")

    def __init__(self, tokens: int, expires: float) -> None:
        self.tokens = tokens
        self.expires = expires
        self.done = False


class Speed:
    """How long a prompt token takes, learned. seconds_per_token: the mean, always more than 0."""

    __slots__ = ("_memory_tokens", "_seconds", "_tokens", "seconds_per_token")

    def __init__(self, seconds_per_token: float, memory_tokens: float) -> None:
        """seconds_per_token: assumed at first. memory_tokens: over how much work it is averaged."""
        self.seconds_per_token = seconds_per_token
        self._tokens = _PRIOR_TOKENS
        self._seconds = _PRIOR_TOKENS * seconds_per_token
        self._memory_tokens = memory_tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Take an observation: `tokens`, at least 1, in `seconds`, more than 0."""
        kept = self._memory_tokens / (self._memory_tokens + tokens)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds
        self.seconds_per_token = self._seconds / self._tokens

    def band(self) -> tuple[float, float]:
        """The bounds, in seconds per token, between which another speed is not clearly a different one."""
        return self.seconds_per_token / _CLEARLY, self.seconds_per_token * _CLEARLY


def fleet_speed() -> Speed:
    """What all backends of a fleet learn together."""
    return Speed(1 / ASSUMED_TOKENS_PER_SECOND, _FLEET_MEMORY_TOKENS)


class Backlog:
    """Of one backend. tokens: the work it has; ask `expire` first. own_speed: as observed here alone."""

    __slots__ = ("_busy_since", "_busy_tokens", "_fleet_speed", "_line", "own_speed", "tokens")

    def __init__(self, fleet_speed: Speed) -> None:
        """fleet_speed: of all backends together; it is told of what is observed here, too."""
        self.tokens = 0
        self._line: deque[Work] = deque()
        self._fleet_speed = fleet_speed
        self.own_speed = Speed(fleet_speed.seconds_per_token, _MEMORY_TOKENS)
        self._busy_since: float | None = None
        self._busy_tokens = 0

    @property
    def seconds_per_token(self) -> float:
        """How long it takes to compute a prompt token."""
        fast, slow = self._fleet_speed.band()
        own = self.own_speed.seconds_per_token
        return self._fleet_speed.seconds_per_token if fast <= own <= slow else own

    def expire(self, now: float) -> None:
        """Take away the work that should be done by now."""
        line = self._line
        while line and (line[0].done or line[0].expires <= now):
            self.drop(line.popleft())

    def add(self, tokens: int, now: float, *, streamed: bool) -> Work:
        """Count the work of a request that is sent now. streamed: whether its first token will be seen."""
        if not self.tokens:
            self._busy_since, self._busy_tokens = now, 0
        self.tokens += tokens
        seconds = self.tokens * self.seconds_per_token
        if streamed:
            seconds = seconds * _PATIENCE + _PATIENCE_SECONDS
        work = Work(tokens, now + seconds)
        self._line.append(work)
        return work

    def finish(self, work: Work, now: float) -> None:
        """Learn that the first token of a request has come."""
        if work.done:
            return
        self._remove(work)
        if self._busy_since is None:
            return
        self._busy_tokens += work.tokens
        if self.tokens and self._busy_tokens < _PERIOD_TOKENS:
            return
        if self._busy_tokens >= _LEAST_LEARNED_TOKENS and now > self._busy_since:
            self.own_speed.learn(self._busy_tokens, now - self._busy_since)
            self._fleet_speed.learn(self._busy_tokens, now - self._busy_since)
        self._busy_since, self._busy_tokens = now, 0

    def drop(self, work: Work) -> None:
        """Take away work of which nobody knows when it was done: nothing can be learned until all is done."""
        if not work.done:
            self._remove(work)
            self._busy_since = None

    def _remove(self, work: Work) -> None:
        work.done = True
        self.tokens -= work.tokens
        line = self._line
        while line and line[0].done:
            line.popleft()
