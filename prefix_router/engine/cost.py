"""What one engine step costs: five measured profiles of model, precision and tensor parallelism.

With n the uncached prompt tokens computed in a step, p the tokens ahead of them, b the sequences that
decode and KV the tokens those attend to, in milliseconds:

    prefill = base + per_token * n + per_pair * n * (n / 2 + p), but never less than its minimum
    decode  = base + per_sequence * b + per_kv_token * KV
    both    = prefill + decode without its base, but never less than decode

The coefficients are fits to measured vLLM kernels on H100 (prefill within 1-3%, decode within 2%). They
leave out what happens outside the GPU: the API server adds about 15 ms to a request, and a router its own
time. Public decode measurements at TP4 are 15-35% below the formula.

Everything here is O(1) arithmetic; nothing here may ask what time it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class CostProfile:
    """The cost of one step of one engine. Times are milliseconds, as in the source of the fits.

    kv_tokens: how many tokens the KV cache holds.
    """

    name: str
    prefill_base_ms: float
    prefill_ms_per_token: float
    prefill_ms_per_pair: float
    prefill_minimum_ms: float
    decode_base_ms: float
    decode_ms_per_sequence: float
    decode_ms_per_kv_token: float
    kv_tokens: int

    def prefill_ms(self, tokens: int, pairs: float) -> float:
        """Milliseconds to compute `tokens` prompt tokens whose attention covers `pairs` token pairs."""
        cost = self.prefill_base_ms + self.prefill_ms_per_token * tokens + self.prefill_ms_per_pair * pairs
        return max(cost, self.prefill_minimum_ms)

    def decode_ms(self, sequences: int, kv_tokens: int) -> float:
        """Milliseconds for `sequences` to gain one token each, attending to `kv_tokens` in total."""
        return self.decode_base_ms + self._decode_increment_ms(sequences, kv_tokens)

    def step_seconds(self, prefill_tokens: int, pairs: float, sequences: int, kv_tokens: int) -> float:
        """Seconds of one step that prefills, decodes, or does both; 0.0 when it does neither."""
        if not prefill_tokens:
            return self.decode_ms(sequences, kv_tokens) / 1e3 if sequences else 0.0
        prefill = self.prefill_ms(prefill_tokens, pairs)
        if not sequences:
            return prefill / 1e3
        increment = self._decode_increment_ms(sequences, kv_tokens)
        return (max(prefill, self.decode_base_ms) + increment) / 1e3

    def blocks(self, block_size: int) -> int:
        """How many whole blocks of `block_size` tokens the KV cache has."""
        return self.kv_tokens // block_size

    def _decode_increment_ms(self, sequences: int, kv_tokens: int) -> float:
        return self.decode_ms_per_sequence * sequences + self.decode_ms_per_kv_token * kv_tokens


def attention_pairs(tokens: int, earlier_tokens: int) -> float:
    """n(n/2 + p): the pairs that `tokens` new tokens attend to behind `earlier_tokens` others."""
    return tokens * (tokens / 2 + earlier_tokens)


_ALL = (
    # name, prefill: base, per token, per pair, minimum; decode: base, per sequence, per KV token; KV tokens
    CostProfile("llama-3.1-70b-h100-tp8", 5.50, 0.03896, 0.498e-6, 12.0, 9.97, 0.02385, 13.4e-6, 1_338_649),
    CostProfile("llama-3.1-70b-h100-tp8-fp8", 6.40, 0.03291, 0.523e-6, 9.5, 7.59, 0.0311, 7.54e-6, 3_095_091),
    CostProfile("llama-3.1-70b-h100-tp4", 3.78, 0.06233, 0.990e-6, 17.4, 15.21, 0.0325, 26.4e-6, 454_016),
    CostProfile("qwen3-32b-h100-tp2", 3.52, 0.05025, 1.597e-6, 17.8, 13.59, 0.0268, 42.2e-6, 301_810),
    CostProfile("llama-3.1-8b-h100", 1.26, 0.02017, 0.789e-6, 7.1, 6.42, 0.01115, 41.7e-6, 432_992),
)

PROFILES: Mapping[str, CostProfile] = MappingProxyType({profile.name: profile for profile in _ALL})
"""The known profiles by name."""

DEFAULT_PROFILE = _ALL[0].name
"""The profile of the published prefix-routing benchmarks: Llama 3.1 70B on eight H100."""
