"""How busy a backend is, and when that is reason enough to leave a key's home.

Load is in-flight requests per share of weight: the one number that the router knows to the microsecond
without asking anybody. Nothing here may decide for the whole fleet at once: each decision looks at its own
target, so one hot backend never costs the others their affinity.

The overflow condition (`clearly_less_loaded`) is deliberately hard to meet. Leaving home makes another
backend compute a prefix again; that work makes queues longer, which makes more requests leave. It must
therefore not fire because two random counts differ, and the least of many counts always differs.
docs/decisions/0003-overflow-condition.md has the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.routing.fleet import Member

HOT_FACTOR = 2
"""How many times the mean of the others a backend carries before it counts as hot."""


def load(member: Member) -> float:
    """In-flight requests per share of weight. Equal ratios (1 of 3, 2 of 6) give the same float."""
    return member.in_flight.count / member.backend.weight


def below_threshold(member: Member, concurrency_threshold: int) -> bool:
    """Whether one more request leaves the backend within `concurrency_threshold` requests per share."""
    return member.in_flight.count < concurrency_threshold * member.backend.weight


def least_loaded(members: Iterable[Member]) -> list[Member]:
    """All members whose load is the lowest, in the order given; empty when there are none.

    The caller breaks the tie, and must not do so by taking the first: then a burst lands on one backend.
    """
    lowest = float("inf")
    tied: list[Member] = []
    for member in members:
        member_load = load(member)
        if member_load < lowest:
            lowest = member_load
            tied = [member]
        elif member_load == lowest:
            tied.append(member)
    return tied


def clearly_less_loaded(candidate: Member, hot: Member, others: Sequence[Member]) -> bool:
    """Whether a request should leave `hot` for `candidate`, the least loaded of the `others`.

    It should when `hot` carries, per share of weight, at least `HOT_FACTOR` times the mean of the others and
    one whole request of the candidate more. The mean is what tells a hot backend from a random count: it is
    steady, and steadier the larger the fleet, where the minimum of many counts only gets lower. The candidate
    is never above the mean, so it cannot end up busier than `hot` is now.

    `others` are the members that could take the request, without `hot`. O(others), whole numbers only.
    """
    count = weight = 0
    for other in others:
        count += other.in_flight.count
        weight += other.backend.weight
    share = candidate.backend.weight
    # hot count ÷ hot weight ≥ HOT_FACTOR × count ÷ weight + 1 ÷ share, without the divisions.
    return hot.in_flight.count * weight * share >= (HOT_FACTOR * count * share + weight) * hot.backend.weight
