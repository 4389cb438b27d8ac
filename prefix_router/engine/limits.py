"""How an engine was started: the settings that shape its schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How an engine was started. The defaults are vLLM's on an H100.

    block_size: tokens in a KV block.
    step_token_budget: most tokens one step computes; at least `max_sequences`.
    max_sequences: most requests that run at once.
    """

    block_size: int = 16
    step_token_budget: int = 8192
    max_sequences: int = 1024

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.max_sequences < 1:
            raise ValueError("block_size and max_sequences must be at least 1")
        if self.step_token_budget < self.max_sequences:
            raise ValueError("step_token_budget must be at least max_sequences: each gets one token a step")
