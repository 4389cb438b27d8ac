from __future__ import annotations

from prefix_router.engine.counters import EngineCounters


def test_the_hit_rate_is_hit_tokens_over_queried_tokens() -> None:
    assert EngineCounters(prefix_cache_query_tokens=200, prefix_cache_hit_tokens=50).hit_rate == 0.25


def test_the_hit_rate_of_an_engine_that_did_nothing_is_zero() -> None:
    assert EngineCounters().hit_rate == 0.0
