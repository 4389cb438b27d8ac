from __future__ import annotations

import pytest

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES, CostProfile, attention_pairs

LLAMA_70B = PROFILES["llama-3.1-70b-h100-tp8"]


def prefill_seconds(profile: CostProfile, tokens: int, earlier: int = 0) -> float:
    return profile.step_seconds(tokens, attention_pairs(tokens, earlier), sequences=0, kv_tokens=0)


def test_an_8192_token_prefill_takes_the_measured_344_ms() -> None:
    assert prefill_seconds(LLAMA_70B, 8192) == pytest.approx(0.344, rel=0.01)


@pytest.mark.parametrize(
    ("name", "prefill_ms", "decode_ms", "kv_tokens"),
    [
        # 4,000 tokens behind 2,000 others; 10 sequences that attend to 50,000 tokens. Worked out by hand.
        ("llama-3.1-70b-h100-tp8", 169.308, 10.8785, 1_338_649),
        ("llama-3.1-70b-h100-tp8-fp8", 146.408, 8.278, 3_095_091),
        ("llama-3.1-70b-h100-tp4", 268.94, 16.855, 454_016),
        ("qwen3-32b-h100-tp2", 230.072, 15.968, 301_810),
        ("llama-3.1-8b-h100", 94.564, 8.6165, 432_992),
    ],
)
def test_each_profile_follows_its_published_formula(
    name: str, prefill_ms: float, decode_ms: float, kv_tokens: int
) -> None:
    profile = PROFILES[name]
    assert profile.prefill_ms(4000, attention_pairs(4000, 2000)) == pytest.approx(prefill_ms)
    assert profile.decode_ms(10, 50_000) == pytest.approx(decode_ms)
    assert profile.kv_tokens == kv_tokens


@pytest.mark.parametrize(
    ("name", "minimum_ms"),
    [
        ("llama-3.1-70b-h100-tp8", 12.0),
        ("llama-3.1-70b-h100-tp8-fp8", 9.5),
        ("llama-3.1-70b-h100-tp4", 17.4),
        ("qwen3-32b-h100-tp2", 17.8),
        ("llama-3.1-8b-h100", 7.1),
    ],
)
def test_a_prefill_of_one_token_costs_the_minimum(name: str, minimum_ms: float) -> None:
    assert prefill_seconds(PROFILES[name], 1) == pytest.approx(minimum_ms / 1e3)


def test_tokens_behind_a_cached_prefix_cost_more_than_the_same_tokens_alone_and_less_than_all() -> None:
    alone = prefill_seconds(LLAMA_70B, 1000)
    behind = prefill_seconds(LLAMA_70B, 1000, earlier=7000)
    everything = prefill_seconds(LLAMA_70B, 8000)
    assert alone < behind < everything


def test_a_prompt_costs_the_same_attention_in_one_piece_or_in_chunks() -> None:
    chunks = attention_pairs(3000, 0) + attention_pairs(2000, 3000) + attention_pairs(1, 5000)
    assert chunks == attention_pairs(5001, 0)


def test_a_step_that_does_both_adds_decode_without_its_constant() -> None:
    prefill = prefill_seconds(LLAMA_70B, 2000)
    both = LLAMA_70B.step_seconds(2000, attention_pairs(2000, 0), sequences=50, kv_tokens=100_000)
    assert both == pytest.approx(prefill + (0.02385 * 50 + 13.4e-6 * 100_000) / 1e3)


def test_a_step_that_does_both_never_costs_less_than_its_decode() -> None:
    quick_prefill = CostProfile("made up", 0.0, 0.001, 0.0, 0.0, 10.0, 1.0, 0.0, 1024)
    assert quick_prefill.step_seconds(1, 0.0, sequences=3, kv_tokens=0) == pytest.approx(0.013)


def test_a_step_that_does_nothing_costs_nothing() -> None:
    assert LLAMA_70B.step_seconds(0, 0.0, sequences=0, kv_tokens=0) == 0.0


def test_only_whole_blocks_of_the_cache_count() -> None:
    assert LLAMA_70B.blocks(16) == 83_665
    assert LLAMA_70B.blocks(128) == 10_458


def test_the_default_profile_is_known_by_its_own_name() -> None:
    assert PROFILES[DEFAULT_PROFILE].name == DEFAULT_PROFILE
