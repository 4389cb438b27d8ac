"""Simulated fleets, with any requests: cached tokens to the block, and nothing lost or counted twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.fleetsim.plan import FleetChange, FleetEvent, FleetPlan
from prefix_router.fleetsim.policies import POLICY_NAMES
from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from prefix_router.fleetsim.simulation import simulate

CACHE_BLOCKS = 12

REQUESTS = st.builds(
    lambda ids, missing, output, answer: SimulatedRequest(
        0.0,
        tuple(ids),
        len(ids) * BLOCK_TOKENS - missing,
        output,
        output_blocks=tuple(answer),
    ),
    # Few ids, so that beginnings are shared and the same id comes behind different beginnings.
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.integers(0, BLOCK_TOKENS - 1),
    st.integers(1, 60),
    st.lists(st.integers(0, 2), max_size=4),
)


class NaiveCache:
    """A prefix cache, slow and obvious: for each free block its whole beginning, least recently freed first.

    For requests one after the other. A copy is (how many were computed before it, its beginning).
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free: list[tuple[int, tuple[int, ...]]] = []
        self.computed = 0

    def serve(self, request: SimulatedRequest) -> int:
        """Run one request from its start to its end and return its cached tokens."""
        ids = request.blocks[: request.prompt_tokens // BLOCK_TOKENS] + request.output_blocks
        held = []
        for end in range(1, (request.prompt_tokens - 1) // BLOCK_TOKENS + 1):
            copies = [copy for copy in self.free if copy[1] == ids[:end]]
            if not copies:
                break
            held.append(min(copies))
        hits = len(held)
        self.free = [copy for copy in self.free if copy not in held]
        tokens = request.prompt_tokens + request.output_tokens - 1
        needed = -(-tokens // BLOCK_TOKENS) - hits
        never_named = self.blocks - hits - len(self.free)
        del self.free[: max(needed - never_named, 0)]
        for end in range(hits + 1, min(tokens // BLOCK_TOKENS, len(ids)) + 1):
            self.computed += 1
            held.append((self.computed, ids[:end]))
        self.free += reversed(held)
        return hits * BLOCK_TOKENS


@settings(max_examples=300, deadline=None)
@given(st.lists(REQUESTS, max_size=20))
def test_cached_tokens_are_those_of_a_naive_cache(requests: list[SimulatedRequest]) -> None:
    apart = [request._replace(arrival_seconds=100.0 * n) for n, request in enumerate(requests)]
    plan = FleetPlan("random", replicas=1, kv_tokens=CACHE_BLOCKS * BLOCK_TOKENS)
    cache = NaiveCache(CACHE_BLOCKS)
    assert [o.cached_tokens for o in simulate(apart, plan).outcomes] == [cache.serve(r) for r in apart]


EVENTS = st.lists(st.tuples(st.floats(0, 2), st.sampled_from(FleetChange), st.integers(0, 3)), max_size=6)


def possible(events: list[tuple[float, FleetChange, int]], replicas: int) -> tuple[FleetEvent, ...]:
    """The events, in order of time, without those that their predecessors rule out."""
    there = set(range(replicas))
    kept = []
    for seconds, change, replica in sorted(events, key=lambda event: event[0]):
        if (replica in there) is (change is FleetChange.JOIN):
            continue
        kept.append(FleetEvent(seconds, change, replica))
        if change is FleetChange.JOIN:
            there.add(replica)
        elif change is FleetChange.LEAVE:
            there.remove(replica)
    return tuple(kept)


@settings(max_examples=200, deadline=None)
@given(
    requests=st.lists(st.tuples(REQUESTS, st.floats(0, 2)), max_size=25),
    strategy=st.sampled_from(POLICY_NAMES),
    routers=st.integers(1, 3),
    events=EVENTS,
)
def test_every_request_ends_once_whatever_happens_to_the_fleet(
    requests: list[tuple[SimulatedRequest, float]],
    strategy: str,
    routers: int,
    events: list[tuple[float, FleetChange, int]],
) -> None:
    arriving = [request._replace(arrival_seconds=seconds) for request, seconds in requests]
    plan = FleetPlan(
        strategy,
        replicas=2,
        routers=routers,
        kv_tokens=CACHE_BLOCKS * BLOCK_TOKENS,
        events=possible(events, 2),
        concurrency_threshold=2,
    )
    result = simulate(arriving, plan)
    assert len(result.outcomes) == len(arriving)
    assert result.in_flight_at_end == 0
    for request, outcome in zip(arriving, result.outcomes, strict=True):
        assert outcome.arrival_seconds == request.arrival_seconds <= outcome.end_seconds
        assert outcome.cached_tokens < request.prompt_tokens
        assert outcome.failed or outcome.first_token_seconds is not None
        assert outcome.failed <= bool(plan.events)
