"""How many second tries the fleet is asked to bear: a share of the recent requests, and a small floor.

`routing.retry` says whether one request may be sent again; this says whether the fleet can afford it. When
everything fails at once, three attempts for each request triple the load just when nobody can carry it. So
over the last `WINDOW_SECONDS` no more retries are allowed than

    max(min_per_second × WINDOW_SECONDS, ratio × requests)

The floor lets a router with little traffic fail over at all; the share is what counts under load.

Charged is what a backend has had to look at: a reset, a broken answer, a refusal for being full. Free is what
never reached one: a connection that could not be made (no living backend works more for it, and a client
should not suffer from a dead one), and the replacement of a kept connection that had just been closed.

Counts sit in slots of one second; the window is the running slot and those before it. O(1) for each call, a
fixed number of integers. `now` is in seconds of a clock that never goes back; if it does, the newest slot
goes on counting. One budget is for one process: the share needs no talking, the floor adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefix_router.routing.retry import Failure

WINDOW_SECONDS = 10

CHARGED = frozenset({Failure.RESET, Failure.BACK_PRESSURE})
"""Failures after which another attempt costs a retry."""


@dataclass(frozen=True, slots=True)
class RetryAllowance:
    """ratio: retries for each request. min_per_second: retries that are allowed however few requests came."""

    ratio: float = 0.2
    min_per_second: float = 10.0


class RetryBudget:
    """Counts requests and retries of the last seconds. `allowance` may be replaced at any time."""

    def __init__(self, allowance: RetryAllowance) -> None:
        self.allowance = allowance
        self._requests = [0] * WINDOW_SECONDS
        self._retries = [0] * WINDOW_SECONDS
        self._request_sum = 0
        self._retry_sum = 0
        self._second = 0

    def count_request(self, now: float) -> None:
        """Count a request, once, whatever becomes of it."""
        self._requests[self._slot(now)] += 1
        self._request_sum += 1

    def take(self, now: float) -> bool:
        """Take one retry from the budget; False, and nothing taken, when it is used up."""
        slot = self._slot(now)
        allowance = self.allowance
        allowed = max(allowance.min_per_second * WINDOW_SECONDS, allowance.ratio * self._request_sum)
        if self._retry_sum + 1 > allowed:
            return False
        self._retries[slot] += 1
        self._retry_sum += 1
        return True

    def _slot(self, now: float) -> int:
        """Forget what has left the window, and return the slot of `now`."""
        second = int(now)
        passed = second - self._second
        if passed > 0:
            for later in range(1, min(passed, WINDOW_SECONDS) + 1):
                slot = (self._second + later) % WINDOW_SECONDS
                self._request_sum -= self._requests[slot]
                self._retry_sum -= self._retries[slot]
                self._requests[slot] = self._retries[slot] = 0
            self._second = second
        return self._second % WINDOW_SECONDS
