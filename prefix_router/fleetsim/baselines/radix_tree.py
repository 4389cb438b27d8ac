"""Baseline `radix_tree`: the cache-aware policy of sglang's router and its descendants vllm-router and smg.

The rule. While the fleet is balanced, a request goes to the replica whose past prompts share the longest
beginning with it, if that is more than half of the prompt, and otherwise to the replica with the smallest
tree, which has the most room. The fleet counts as imbalanced when the largest and the smallest number of
requests in flight are more than 32 apart *and* their ratio is above 1.1: then every request, whatever its
prefix, goes to the least loaded replica. The prompt is recorded where it went in either case. Of several
equally long matches the original takes any; here the least loaded of them, which is kind to it.

The reasons of its decisions: `affinity` for a match, `keyless` for none, `overflow` for an imbalanced fleet.

The original's tree is of characters; here each replica has its set of block names, which says the same at 16
tokens' resolution. A set is in the order of last use and loses the oldest first. A prompt's blocks are
touched tail first, so a block is never older than those behind it: what is left of a prompt is a beginning,
and its length is found by bisection. O(replicas × log blocks) to choose, O(blocks) to record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

from prefix_router.fleetsim.policy import Policy
from prefix_router.fleetsim.request import BLOCK_TOKENS
from prefix_router.routing.capacity import least_loaded
from prefix_router.routing.decision import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.policy import RoutedRequest
    from prefix_router.routing.fleet import BackendName, Fleet, Member

MATCH_THRESHOLD = 0.5
BALANCE_ABSOLUTE = 32
BALANCE_RELATIVE = 1.1
MOST_BLOCKS = 1 << 20
"""Blocks remembered for each replica: 16 million tokens, many times what its KV cache holds."""


class RadixTree(Policy):
    """The longest match, unless the fleet is imbalanced.

    most_blocks: how many blocks are remembered for each replica.
    """

    name = "radix_tree"

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._blocks: dict[BackendName, OrderedDict[int, None]] = {}

    def choose(self, routed: RoutedRequest, fleet: Fleet, now: float) -> Decision | None:
        """The best match, the emptiest or the least loaded, by the rule above."""
        members = fleet.routable(routed.query.model, routed.query.failed)
        if not members:
            return None
        counts = [member.in_flight.count for member in members]
        if max(counts) - min(counts) > BALANCE_ABSOLUTE and max(counts) > BALANCE_RELATIVE * min(counts):
            return Decision(_least_loaded(members, routed), Reason.OVERFLOW)
        prompt = _prompt_names(routed)
        matches = [self.matched_blocks(member.name, prompt) for member in members]
        longest = max(matches)
        if longest * BLOCK_TOKENS > MATCH_THRESHOLD * routed.request.prompt_tokens:
            best = [member for member, match in zip(members, matches, strict=True) if match == longest]
            return Decision(_least_loaded(best, routed), Reason.AFFINITY)
        sizes = [len(self._blocks.get(member.name, ())) for member in members]
        emptiest = [member for member, size in zip(members, sizes, strict=True) if size == min(sizes)]
        return Decision(_least_loaded(emptiest, routed), Reason.KEYLESS)

    def matched_blocks(self, backend: BackendName, names: Sequence[int]) -> int:
        """How many blocks, from the first on, are remembered for `backend`."""
        held = self._blocks.get(backend)
        if not held:
            return 0
        return bisect_left(names, True, key=lambda name: name not in held)

    def dispatched(self, routed: RoutedRequest, backend: BackendName, now: float) -> None:
        """Remember the prompt."""
        held = self._blocks.setdefault(backend, OrderedDict())
        for name in reversed(_prompt_names(routed)):
            held[name] = None
            held.move_to_end(name)
        while len(held) > self._most_blocks:
            held.popitem(last=False)

    def emptied(self, backend: BackendName, now: float) -> None:
        """Forget the replica: the original removes a worker that has failed its health check."""
        self._blocks.pop(backend, None)


def _prompt_names(routed: RoutedRequest) -> Sequence[int]:
    return routed.names[: routed.request.prompt_tokens // BLOCK_TOKENS]


def _least_loaded(members: Sequence[Member], routed: RoutedRequest) -> Member:
    tied = least_loaded(members)
    return tied[routed.query.draw % len(tied)]
