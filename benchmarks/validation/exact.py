"""Cached tokens, request by request: a replica against the engine model, a routed fleet against its twin.

The numbers of the replicas are asked of them (`vllm:cache_config_info`), not assumed. The limits are given
to both sides. vLLM's own counters are compared too: they count what no answer reports, preemptions above all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from benchmarks.support.vllm.paths import BUILD, LOGS
from benchmarks.support.vllm.replica import MODEL_NAME, CacheConfig, Replica, ReplicaOptions
from benchmarks.support.vllm.router import running_router
from benchmarks.validation.asking import put
from benchmarks.validation.comparison import Comparison, compare
from benchmarks.validation.sequence import SequenceSpec, mixed_sequence
from benchmarks.validation.twin import EngineTwin, FleetTwin
from prefix_router.engine.limits import EngineLimits
from prefix_router.openai_api.request import parse
from prefix_router.routing.fleet import BackendName
from prefix_router.routing.key import PrefixRule, prefix_key
from prefix_router.routing.strategies import build_strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.support.vllm.replica import EngineCounters
    from benchmarks.validation.sequence import Group
    from benchmarks.validation.served import Served

_STEP_TOKEN_BUDGET = 4096
_MAX_SEQUENCES = 8
_ENDLESS_BLOCKS = 1_000_000
_PREFIX_TOKENS = 256
"""Of the routed part: some prompts share a key, some are shorter than that."""
_CONCURRENCY_THRESHOLD = 64


def small_cache(block_size: int, tokens: int = 12_288) -> ReplicaOptions:
    """A replica with room for `tokens` tokens: a few prompts."""
    return ReplicaOptions(
        max_model_length_tokens=2 * _STEP_TOKEN_BUDGET,
        block_size_tokens=block_size,
        kv_blocks=tokens // block_size + 1,
        step_token_budget=_STEP_TOKEN_BUDGET,
        max_sequences=_MAX_SEQUENCES,
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """What an engine has counted: tokens asked for and found, and preemptions."""

    queried_tokens: int
    hit_tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class EngineResult:
    """A replica's sequence. forgotten: requests that would have hit more, had nothing been evicted."""

    cache: CacheConfig
    comparison: Comparison
    vllm: Counted
    model: Counted
    forgotten: int

    @property
    def agrees(self) -> bool:
        """Whether the two agree on every request and on all counters."""
        return not self.comparison.mismatches and self.vllm == self.model

    def document(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "cache": asdict(self.cache),
            "step_token_budget": _STEP_TOKEN_BUDGET,
            "max_sequences": _MAX_SEQUENCES,
            **self.comparison.document(),
            "requests_that_lost_blocks_to_eviction": self.forgotten,
            "counters": {"vllm": asdict(self.vllm), "model": asdict(self.model)},
        }


async def compare_engine(replica: Replica, single: int, groups: int) -> EngineResult:
    """Put a sequence to a replica with an empty cache and to the model; numbers as in `SequenceSpec`."""
    async with aiohttp.ClientSession() as session:
        cache = await replica.cache_config(session)
        before = await replica.counters(session)
        served = await put(session, replica.url, mixed_sequence(_spec(cache, single, groups, "engine")))
        after = await replica.counters(session)
    twin = _engine_twin(cache)
    comparison = _compare_with(twin, served)
    return EngineResult(
        cache,
        comparison,
        _of_vllm(before, after),
        _of_model(twin),
        _forgotten(served, cache.block_size_tokens),
    )


@dataclass(frozen=True, slots=True)
class FleetResult:
    """A routed sequence. requests_by_backend: how many each replica served."""

    strategy: str
    comparison: Comparison
    requests_by_backend: dict[str, int]

    @property
    def agrees(self) -> bool:
        """Whether replica and cached tokens are the same for every request."""
        return not self.comparison.mismatches

    def document(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "strategy": self.strategy,
            "prefix_tokens": _PREFIX_TOKENS,
            "requests_by_backend": self.requests_by_backend,
            **self.comparison.document(),
        }


async def compare_fleet(
    replicas: Sequence[Replica], strategies: Sequence[str], single: int
) -> list[FleetResult]:
    """Route a sequence over cold replicas by each strategy in turn, and over their twins.

    Requests come one after the other: in-flight counts, and with them every decision, are the same each time.
    The caches stay as the strategy before left them, on both sides.
    """
    names = [BackendName(f"replica-{number}") for number in range(1, len(replicas) + 1)]
    results = []
    async with aiohttp.ClientSession() as session:
        cache = await replicas[0].cache_config(session)
        engines = {name: _engine_twin(cache) for name in names}
        for strategy in strategies:
            groups = mixed_sequence(_spec(cache, single, 0, f"fleet {strategy}"))
            served = await _routed(session, replicas, names, strategy, groups)
            twin = FleetTwin(
                engines, build_strategy(strategy, _CONCURRENCY_THRESHOLD), _key, model=MODEL_NAME
            )
            comparison = compare(served, [twin.serve(request) for request in served])
            shares = {str(name): sum(request.backend == name for request in served) for name in names}
            results.append(FleetResult(strategy, comparison, shares))
    return results


async def _routed(
    session: aiohttp.ClientSession,
    replicas: Sequence[Replica],
    names: Sequence[BackendName],
    strategy: str,
    groups: Sequence[Group],
) -> list[Served]:
    # Names of their own: with those that ports give them, replicas would own other keys in every run.
    document = {
        "backends": [
            {"url": replica.url, "name": name} for replica, name in zip(replicas, names, strict=True)
        ],
        "routing": {
            "prefix": {"length": _PREFIX_TOKENS},
            "concurrency_threshold": _CONCURRENCY_THRESHOLD,
        },
    }
    BUILD.mkdir(parents=True, exist_ok=True)
    config = BUILD / "validation.yaml"
    config.write_text(json.dumps(document))
    log = LOGS / f"validation-router-{strategy}.log"
    with running_router(replicas, strategy, log, ["--config", str(config)]) as router:
        return [served for group in await put(session, router.url, groups) for served in group]


def _key(prompt: Sequence[int]) -> int | None:
    """The key of a prompt: through the router's own reader of requests and its own hash."""
    body = json.dumps({"model": MODEL_NAME, "prompt": list(prompt)}).encode()
    request = parse("/v1/completions", "application/json", body, {})
    key = prefix_key(request, PrefixRule(_PREFIX_TOKENS), body)
    return None if key is None else key.value


def _spec(cache: CacheConfig, single: int, groups: int, seed: str) -> SequenceSpec:
    return SequenceSpec(
        block_size=cache.block_size_tokens,
        cache_tokens=cache.blocks * cache.block_size_tokens,
        step_token_budget=_STEP_TOKEN_BUDGET,
        single=single,
        groups=groups,
        seed=seed,
    )


def _engine_twin(cache: CacheConfig) -> EngineTwin:
    return EngineTwin(cache.blocks, EngineLimits(cache.block_size_tokens, _STEP_TOKEN_BUDGET, _MAX_SEQUENCES))


def _compare_with(twin: EngineTwin, groups: Sequence[Sequence[Served]]) -> Comparison:
    predicted = [one for group in groups for one in twin.serve(group)]
    return compare([served for group in groups for served in group], predicted)


def _forgotten(groups: Sequence[Sequence[Served]], block_size: int) -> int:
    """Requests that an endless cache would have served better."""
    endless = _compare_with(_engine_twin(CacheConfig(_ENDLESS_BLOCKS, block_size)), groups)
    return sum(mismatch.model_cached_tokens > mismatch.vllm_cached_tokens for mismatch in endless.mismatches)


def _of_vllm(before: EngineCounters, after: EngineCounters) -> Counted:
    return Counted(
        after.queried_tokens - before.queried_tokens,
        after.hit_tokens - before.hit_tokens,
        after.preemptions - before.preemptions,
    )


def _of_model(twin: EngineTwin) -> Counted:
    counters = twin.counters
    return Counted(counters.prefix_cache_query_tokens, counters.prefix_cache_hit_tokens, counters.preemptions)
