"""Conversations that go on at the same time, in the order in which their turns arrive.

A number of people talk at once. Whoever ends a conversation begins the next, so the rate of requests is about
the same from the first minute to the last, and is set by how many people there are and how long they pause.
Turns arrive when they are due, whether or not the one before has been answered (open loop).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest


class Turn(NamedTuple):
    """A request, with `arrival_seconds` from the start of its conversation."""

    request: SimulatedRequest
    pause_seconds: float
    """From this turn to the next of the conversation, or to the next conversation."""


def interleave(
    converse: Callable[[], Iterator[Turn] | None],
    people: int,
    count: int,
    random: Random,
    pause_seconds: float,
) -> list[SimulatedRequest]:
    """The first `count` requests of `people` who have one conversation after the other.

    converse: makes a new conversation, of at least one turn and with its turns in order of time; None when
    there are no more, and then there may be fewer requests.
    pause_seconds: everybody begins within this time. Complexity: O(count log people).
    """
    requests: list[SimulatedRequest] = []
    due: list[tuple[float, int, float, Turn, Iterator[Turn]]] = []

    def begin(person: int, seconds: float) -> None:
        talk = converse()
        if talk is None:
            return
        turn = next(talk)
        heappush(due, (seconds + turn.request.arrival_seconds, person, seconds, turn, talk))

    for person in range(people):
        begin(person, random.uniform(0.0, pause_seconds))
    while due and len(requests) < count:
        seconds, person, start, turn, talk = heappop(due)
        requests.append(turn.request._replace(arrival_seconds=seconds))
        following = next(talk, None)
        if following is None:
            begin(person, seconds + turn.pause_seconds)
        else:
            heappush(due, (start + following.request.arrival_seconds, person, start, following, talk))
    return requests
