"""How many requests a second a fleet can take at most, and requests at a share of that.

The load of a run is a share of the fleet's capacity for the workload at hand: the rate at which a fleet whose
cache is ideal would just keep up. With an ideal cache, each block is computed once in the whole fleet and
never again, whoever asks for it; what a real fleet computes beyond that, because of routing or of eviction,
is waste. So 1.0 is a load that only perfect routing survives, and that not without queues.

Over all R requests, computed for their prompts: N tokens that attend to P pairs (see `engine.cost`).
Generated after the first token: O tokens that attend to K in total. An engine that always has work takes as
few steps as it can: S = max(N / step token budget, O / B), where B sequences decode at a time, as many as
an engine may run and as fit its KV cache at an average length (prompt and half the output). All steps being
alike,

    capacity = replicas * R / (S * step_seconds(N / S, P / S, O / S, K / S))

with the cost profile's own formula of a step.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_router.engine.cost import attention_pairs
from prefix_router.engine.limits import EngineLimits
from prefix_router.fleetsim.request import BLOCK_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.engine.cost import CostProfile
    from prefix_router.fleetsim.request import SimulatedRequest


@dataclass(frozen=True, slots=True)
class IdealWork:
    """What requests cost with an ideal cache, all together.

    prompt_tokens: of all prompts. computed_tokens, pairs: what must be computed of them. decoded_tokens: what
    is generated behind first tokens. attended_tokens: what those attend to. resident_tokens: what the
    requests hold in a KV cache halfway through their outputs.
    """

    requests: int
    prompt_tokens: int
    computed_tokens: int
    pairs: float
    decoded_tokens: int
    attended_tokens: int
    resident_tokens: float

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that an ideal cache has."""
        return 1 - self.computed_tokens / self.prompt_tokens

    def capacity(self, profile: CostProfile, replicas: int, limits: EngineLimits | None = None) -> float:
        """Requests a second at which `replicas` engines would just keep up."""
        limits = limits or EngineLimits()
        fitting = profile.kv_tokens * self.requests / self.resident_tokens
        sequences = max(min(limits.max_sequences, fitting), 1.0)
        steps = max(self.computed_tokens / limits.step_token_budget, self.decoded_tokens / sequences)
        seconds = steps * profile.step_seconds(
            round(self.computed_tokens / steps),
            self.pairs / steps,
            round(self.decoded_tokens / steps),
            round(self.attended_tokens / steps),
        )
        return replicas * self.requests / seconds


def ideal_work(requests: Sequence[SimulatedRequest]) -> IdealWork:
    """What `requests`, in order of arrival and at least one, cost with an ideal cache.

    Equal block ids must mean equal beginnings, as in all workloads and traces here. O(new blocks).
    """
    known: set[int] = set()
    prompt_tokens = computed_tokens = decoded_tokens = attended_tokens = 0
    pairs = resident_tokens = 0.0
    for request in requests:
        prompt, output = request.prompt_tokens, request.output_tokens
        full = prompt // BLOCK_TOKENS
        # A block is only known if all before it are: the first unknown one can be searched for.
        leading = bisect_left(request.blocks, True, hi=full, key=lambda block: block not in known)
        cached = min(leading, (prompt - 1) // BLOCK_TOKENS) * BLOCK_TOKENS
        known.update(request.blocks[leading:full])
        known.update(request.output_blocks)
        prompt_tokens += prompt
        computed_tokens += prompt - cached
        pairs += attention_pairs(prompt - cached, cached)
        decoded_tokens += output - 1
        attended_tokens += (output - 1) * prompt + output * (output - 1) // 2
        resident_tokens += prompt + output / 2
    return IdealWork(
        len(requests),
        prompt_tokens,
        computed_tokens,
        pairs,
        decoded_tokens,
        attended_tokens,
        resident_tokens,
    )


def at_rate(requests: Sequence[SimulatedRequest], per_second: float) -> list[SimulatedRequest]:
    """The same requests, with time stretched or squeezed to this mean rate.

    Pauses within a conversation change with it. Requests that all come at once stay as they are.
    """
    start = requests[0].arrival_seconds
    span = requests[-1].arrival_seconds - start
    factor = (len(requests) - 1) / per_second / span if span else 0.0
    return [
        request._replace(arrival_seconds=(request.arrival_seconds - start) * factor) for request in requests
    ]
