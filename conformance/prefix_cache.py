"""A stand-in for a replica's prefix cache, with the counters that vLLM exports.

Text is cut into blocks of BLOCK_CHARACTERS, each block is known by the hash of all text up to its end, and
blocks are kept in the order of their last use. A token is taken as four characters. Good enough to see
whether equal beginnings meet; it says nothing about a real cache's timing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

BLOCK_CHARACTERS = 64
CHARACTERS_PER_TOKEN = 4


class PrefixCache:
    """Remembers the last `capacity_blocks` blocks."""

    def __init__(self, capacity_blocks: int = 4096) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self.queried_tokens = 0
        self.hit_tokens = 0

    def look_up(self, text: str) -> int:
        """Count `text` as one prompt, remember it, and return how many of its tokens were known."""
        known = 0
        so_far = hashlib.blake2b(digest_size=16)
        unbroken = True
        whole = len(text) - len(text) % BLOCK_CHARACTERS
        for start in range(0, whole, BLOCK_CHARACTERS):
            so_far.update(text[start : start + BLOCK_CHARACTERS].encode("utf-8", "replace"))
            block = so_far.digest()
            unbroken = unbroken and block in self._blocks
            known += unbroken
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        hit = known * BLOCK_CHARACTERS // CHARACTERS_PER_TOKEN
        self.queried_tokens += len(text) // CHARACTERS_PER_TOKEN
        self.hit_tokens += hit
        return hit

    def metrics(self, running: int) -> bytes:
        """Return the exposition text with vLLM's names."""
        labels = 'engine="0",model_name="conformance-model"'
        lines = []
        for name, kind, value in (
            ("vllm:prefix_cache_queries_total", "counter", self.queried_tokens),
            ("vllm:prefix_cache_hits_total", "counter", self.hit_tokens),
            ("vllm:num_requests_running", "gauge", running),
            ("vllm:num_requests_waiting", "gauge", 0),
            ("vllm:kv_cache_usage_perc", "gauge", len(self._blocks) / self._capacity),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name}{{{labels}}} {float(value)}"]
        return "\n".join([*lines, ""]).encode()
