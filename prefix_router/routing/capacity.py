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
"""A backend is hot when it carries this many times what the others carry."""


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

    Two conditions, both per share of weight:

    1. `hot` carries at least `HOT_FACTOR` times the mean of the others. The mean of many counts is steady
       where their minimum is not, so this holds back noise in a fleet of any size.
    2. `hot` carries at least `HOT_FACTOR` times the candidate's load and one whole request more. It matters
       in small fleets, where the mean is as noisy as the candidate, and keeps the order from turning round.

    `others` are the members that could take the request, without `hot`; O(others).
    """
    hot_count, hot_weight = hot.in_flight.count, hot.backend.weight
    count = weight = 0
    for other in others:
        count += other.in_flight.count
        weight += other.backend.weight
    if hot_count * weight < HOT_FACTOR * count * hot_weight:
        return False
    wanted_count = HOT_FACTOR * candidate.in_flight.count + 1
    return hot_count * candidate.backend.weight >= wanted_count * hot_weight
