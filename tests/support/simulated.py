"""Requests for simulated fleets, in one line each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from prefix_router.fleetsim.keys import name_blocks, prefix_key
from prefix_router.fleetsim.policy import RoutedRequest
from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from tests.support.fleets import query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefix_router.fleetsim.result import FleetResult


def simulated(
    blocks: Iterable[int],
    seconds: float = 0.0,
    *,
    prompt: int | None = None,
    output: int = 1,
    session: str | None = None,
    user_turn: int | None = None,
    model: str | None = None,
    output_blocks: Iterable[int] = (),
) -> SimulatedRequest:
    """A request whose prompt fills its blocks, unless `prompt` says that the last one is partial."""
    ids = tuple(blocks)
    tokens = len(ids) * BLOCK_TOKENS if prompt is None else prompt
    return SimulatedRequest(
        seconds, ids, tokens, output, session, user_turn, model, output_blocks=tuple(output_blocks)
    )


def routed(request: SimulatedRequest, *, prefix_tokens: int = 1024, draw: int = 0) -> RoutedRequest:
    """The request as a policy sees it."""
    key = prefix_key(request, prefix_tokens)
    return RoutedRequest(
        request,
        query(key, model=request.model, draw=draw, session=request.session),
        name_blocks(request),
    )


def traffic(
    count: int, seed: int = 0, *, prefixes: int = 10, requests_per_second: float = 20.0, output: int = 10
) -> list[SimulatedRequest]:
    """Questions about documents of 80 blocks, more than a key covers."""
    random = Random(seed)
    seconds = 0.0
    made = []
    for number in range(count):
        seconds += random.expovariate(requests_per_second)
        document = random.randrange(prefixes)
        blocks = [*range(document * 100, document * 100 + 80), 10**6 + number]
        made.append(simulated(blocks, seconds, output=output))
    return made


def replicas_of(result: FleetResult, start: float = 0.0, end: float = 1e9) -> set[str | None]:
    """Who had the requests that arrived from `start` to `end`."""
    return {outcome.replica for outcome in result.outcomes if start <= outcome.arrival_seconds < end}


def assert_whole(result: FleetResult, requests: Iterable[SimulatedRequest]) -> None:
    """Each request has ended, once, and nothing is left of it."""
    assert [o.arrival_seconds for o in result.outcomes] == [r.arrival_seconds for r in requests]
    assert result.in_flight_at_end == 0
