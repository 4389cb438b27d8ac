"""Published measurements, simulated: what was measured, what comes out here, and by how much that differs.

Each point says what its source left open and what was assumed for it. An assumption is a free parameter: a
point that was fitted with one proves less than a point that was not, so it is named in the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES
from prefix_router.fleetsim.capacity import at_rate
from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.result import FleetResult
from prefix_router.fleetsim.simulation import simulate
from prefix_router.fleetsim.workloads.catalogue import generate
from prefix_router.fleetsim.workloads.sagemaker import SagemakerWorkload
from prefix_router.fleetsim.workloads.unique import UniqueWorkload


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a source, and what the simulator makes of it. unit: of both values."""

    source: str
    setting: str
    quantity: str
    unit: str
    published: float | None
    simulated: float

    @property
    def deviation(self) -> float | None:
        """How far the simulator is off; None where nothing was published."""
        return None if self.published is None else self.simulated / self.published - 1

    def document(self) -> dict[str, Any]:
        """The same as plain values."""
        deviation = self.deviation
        return {
            **asdict(self),
            "simulated": round(self.simulated, 4),
            "deviation": None if deviation is None else round(deviation, 4),
        }


# The cost model itself.

PREFILL_TOKENS = 8192
PREFILL_MS = {DEFAULT_PROFILE: 344.0}
"""Measured, where that was published."""


def prefill_points() -> Iterator[Point]:
    """One prompt of 8,192 tokens on an idle engine, for each profile; nothing is assumed."""
    (request,) = generate(UniqueWorkload(prompt_tokens=PREFILL_TOKENS, prompt_sigma=0.0), 1, seed=0)
    for name in PROFILES:
        plan = FleetPlan("round_robin", replicas=1, profile=name, api_overhead_seconds=0.0)
        (seconds,) = simulate([request], plan).ttft_seconds()
        yield Point(
            "kernel measurements", name, "prefill of 8,192 tokens", "ms", PREFILL_MS.get(name), seconds * 1e3
        )


# llm-d: four replicas of a 70B model at TP4, prompts of 8,000 + 1,000 tokens, answers of 1,000.

LLM_D_PROFILE = "llama-3.1-70b-h100-tp4"
LLM_D_PREFIXES, LLM_D_USES = 150, 20
"""Assumed: neither number is known. 150 prefixes fit the fleet's caches together, and no single one."""
LLM_D_RISING_RATES = (3.0, 6.0, 9.0, 12.0)
"""Assumed, per second: it is only known that the rate rose and began at three."""
LLM_D_STAND_INS = {
    "precise": "radix_tree",
    "approximate": "prefix_aware",
    "load": "least_outstanding_requests",
    "random": "random",
}
"""The policy that is simulated for each of llm-d's. `radix_tree` knows what it sent where, in one router."""
LLM_D_SMALL_KV_TOKENS = 300_000
"""A cache a third smaller than the profile's, to see what the assumptions are worth."""
LLM_D_MEAN_TTFT_MS = {"precise": 144.0, "random": 852.0}
LLM_D_TOKENS_PER_SECOND = {"precise": 5650.0, "approximate": 5096.0, "load": 3018.0, "random": 2895.0}


def llm_d_points() -> Iterator[Point]:
    """The mean time to first token at three a second, and the throughput over a rising rate."""
    requests = _llm_d_requests(LLM_D_USES)
    results = {
        (name, rate): simulate(at_rate(requests, rate), _llm_d_plan(policy))
        for name, policy in LLM_D_STAND_INS.items()
        for rate in LLM_D_RISING_RATES
    }
    for name, policy in LLM_D_STAND_INS.items():
        at_three = results[name, LLM_D_RISING_RATES[0]]
        yield Point(
            "llm-d",
            f"3/s, {name} as {policy}",
            "mean TTFT",
            "ms",
            LLM_D_MEAN_TTFT_MS.get(name),
            fmean(at_three.ttft_seconds()) * 1e3,
        )
        yield Point("llm-d", f"3/s, {name} as {policy}", "hit rate", "share", None, at_three.hit_rate())
    tokens = {
        name: fmean(_throughput(results[name, rate]) for rate in LLM_D_RISING_RATES)
        for name in LLM_D_STAND_INS
    }
    for name, policy in LLM_D_STAND_INS.items():
        yield Point(
            "llm-d",
            f"rising rate, {name} as {policy}",
            "output tokens/s",
            "tokens/s",
            LLM_D_TOKENS_PER_SECOND[name],
            tokens[name],
        )
    for name in ("precise", "approximate", "load"):
        yield Point(
            "llm-d",
            "rising rate",
            f"output tokens/s, {name} / random",
            "ratio",
            LLM_D_TOKENS_PER_SECOND[name] / LLM_D_TOKENS_PER_SECOND["random"],
            tokens[name] / tokens["random"],
        )


def llm_d_sensitivity() -> Iterator[Point]:
    """The published numbers that fit worst, under other assumptions."""
    first, *_, last = LLM_D_RISING_RATES
    requests = at_rate(_llm_d_requests(LLM_D_USES), first)
    for name in ("precise", "random"):
        policy = LLM_D_STAND_INS[name]
        result = simulate(requests, _llm_d_plan(policy, LLM_D_SMALL_KV_TOKENS))
        yield Point(
            "llm-d",
            f"3/s, {name} as {policy}, KV cache of {LLM_D_SMALL_KV_TOKENS:,} tokens",
            "mean TTFT",
            "ms",
            LLM_D_MEAN_TTFT_MS[name],
            fmean(result.ttft_seconds()) * 1e3,
        )
    nothing_shared = simulate(at_rate(_llm_d_requests(1), last), _llm_d_plan("random"))
    yield Point(
        "llm-d",
        f"{last:g}/s, random, no prefix used twice",
        "output tokens/s",
        "tokens/s",
        LLM_D_TOKENS_PER_SECOND["random"],
        _throughput(nothing_shared),
    )


def _llm_d_requests(uses: int) -> list[SimulatedRequest]:
    workload = SagemakerWorkload(
        prefix_tokens=8000, uses=uses, tail_tokens=1000, output_tokens=1000, active=LLM_D_PREFIXES
    )
    return generate(workload, LLM_D_PREFIXES * LLM_D_USES, seed=1)


def _llm_d_plan(policy: str, kv_tokens: int | None = None) -> FleetPlan:
    return FleetPlan(policy, replicas=4, profile=LLM_D_PROFILE, concurrency_threshold=64, kv_tokens=kv_tokens)


# SageMaker: seven replicas of Llama 3.1 70B on eight H100 each, 8,000-token prefixes.

SAGEMAKER_RATES = (6.0, 8.0, 10.0, 12.0, 15.0, 30.0)
"""Tried, per second: the rate was not published. At the last one, random cannot keep up."""
SAGEMAKER_SEEDS = (1, 2, 3)
SAGEMAKER_REQUESTS = 2000
SAGEMAKER = {
    "hit rate, random": 0.25,
    "hit rate, prefix_aware": 0.82,
    "P50 TTFT, gain": 0.77,
    "P90 TTFT, gain": 0.37,
    "P90 gain / P50 gain": 0.37 / 0.77,
    "throughput, gain": 0.16,
    "P50 TTFT, random": 280.0,
    "P50 TTFT, prefix_aware": 63.0,
}
"""The better of the two figures where a range was reported; times are in milliseconds."""


def sagemaker_points() -> Iterator[Point]:
    """Every quantity at every rate; the shape is P90's gain as a share of P50's."""
    for rate in SAGEMAKER_RATES:
        for quantity, simulated in _sagemaker(rate).items():
            unit = "ms" if quantity.startswith("P50 TTFT, ") and "gain" not in quantity else "share"
            yield Point("SageMaker", f"{rate:g}/s", quantity, unit, SAGEMAKER.get(quantity), simulated)


def nearest_rate(points: Iterable[Point]) -> float:
    """The rate of those tried at which the shape comes closest: the one fit of the SageMaker points."""
    shapes = {
        float(point.setting.removesuffix("/s")): abs(point.deviation or 0.0)
        for point in points
        if point.source == "SageMaker" and point.quantity == "P90 gain / P50 gain"
    }
    return min(shapes, key=lambda rate: shapes[rate])


def _sagemaker(rate: float) -> dict[str, float]:
    runs = [_sagemaker_run(rate, seed) for seed in SAGEMAKER_SEEDS]
    mean = {quantity: fmean(run[quantity] for run in runs) for quantity in runs[0]}
    mean["P90 gain / P50 gain"] = mean["P90 TTFT, gain"] / mean["P50 TTFT, gain"]
    return mean


def _sagemaker_run(rate: float, seed: int) -> dict[str, float]:
    requests = at_rate(generate(SagemakerWorkload(), SAGEMAKER_REQUESTS, seed), rate)
    plan = FleetPlan("random", seed=seed)
    blind, aware = (simulate(requests, replace(plan, strategy=name)) for name in ("random", "prefix_aware"))
    blind_ms, aware_ms = (result.row("sagemaker", rate)["ttft_ms"] for result in (blind, aware))
    return {
        "hit rate, random": blind.hit_rate(),
        "hit rate, prefix_aware": aware.hit_rate(),
        "P50 TTFT, random": blind_ms["p50"],
        "P50 TTFT, prefix_aware": aware_ms["p50"],
        "P50 TTFT, gain": _gain(blind_ms, aware_ms, "p50"),
        "P90 TTFT, gain": _gain(blind_ms, aware_ms, "p90"),
        "throughput, gain": _throughput(aware) / _throughput(blind) - 1,
    }


def _gain(blind: Mapping[str, float], aware: Mapping[str, float], quantile: str) -> float:
    return 1 - aware[quantile] / blind[quantile]


def _throughput(result: FleetResult) -> float:
    tokens: float = result.row("", 0.0)["throughput_tokens_per_second"]
    return tokens


def all_points() -> Sequence[Point]:
    """Everything, in the order in which a simulator should be checked. Takes about two minutes."""
    return [*prefill_points(), *llm_d_points(), *llm_d_sensitivity(), *sagemaker_points()]
