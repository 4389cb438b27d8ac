"""What an engine has done since it started: the numbers behind vLLM's own counters.

They only ever grow. `prefix_cache_queries` and `prefix_cache_hits` count tokens, once per request, when it
is first admitted: a preempted request that comes back mostly hits its own blocks, and counting those
would flatter the cache.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineCounters:
    """Totals. Those of tokens say so; `steps` counts finished engine steps."""

    steps: int = 0
    prefix_cache_query_tokens: int = 0
    prefix_cache_hit_tokens: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of requests that have produced their first token."""
    generated_tokens: int = 0
    finished_requests: int = 0
    aborted_requests: int = 0
    preemptions: int = 0

    @property
    def hit_rate(self) -> float:
        """Prompt tokens found in the cache, as a share of those looked up; 0.0 before the first."""
        if not self.prefix_cache_query_tokens:
            return 0.0
        return self.prefix_cache_hit_tokens / self.prefix_cache_query_tokens
