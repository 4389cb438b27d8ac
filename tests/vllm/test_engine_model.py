"""The engine model of stand-in and simulator caches what a real vLLM caches, to the block."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.support.vllm.replica import Replica
from benchmarks.validation.exact import EngineResult, compare_engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

SINGLE_REQUESTS = 30
CONCURRENT_GROUPS = 1


@pytest.fixture(scope="module")
def result(small_replica: Replica) -> EngineResult:
    return asyncio.run(compare_engine(small_replica, SINGLE_REQUESTS, CONCURRENT_GROUPS))


def test_every_request_hits_the_blocks_that_the_model_expects(result: EngineResult) -> None:
    assert result.comparison.mismatches == ()


def test_the_counters_agree(result: EngineResult) -> None:
    assert result.model == result.vllm


def test_the_sequence_was_worth_it(result: EngineResult) -> None:
    """It hit, it evicted, and it took blocks from a running request."""
    assert result.comparison.with_hits >= SINGLE_REQUESTS // 4
    assert result.forgotten > 0
    assert result.vllm.preemptions > 0
