"""The stand-in's `/metrics`, under vLLM's names and with its labels.

A collector, not a set of live metrics: the engine keeps its own counters and this reads them when somebody
asks, so a step pays nothing for being observed. Times are simulated seconds.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from prefix_router.simulate.driver import TTFT_BUCKETS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from prefix_router.simulate.driver import EngineDriver

_ENGINE = "0"
_LABELS = ("model_name", "engine")


class EngineMetrics(Collector):
    """Reads one driver's engine. `finished` maps vLLM's finish reasons to requests that ended so."""

    def __init__(self, driver: EngineDriver, model: str, finished: Mapping[str, int]) -> None:
        self._driver = driver
        self._model = model
        self._finished = finished
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus calls."""
        engine = self._driver.engine
        counters = engine.counters
        yield self._gauge("num_requests_running", "Number of requests in execution.", engine.running)
        yield self._gauge("num_requests_waiting", "Number of requests queued.", self._driver.waiting)
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent.", engine.kv_usage)
        yield self._counter(
            "prefix_cache_queries", "Tokens looked up in the cache.", counters.prefix_cache_query_tokens
        )
        yield self._counter("prefix_cache_hits", "Tokens found in it.", counters.prefix_cache_hit_tokens)
        yield self._counter("prompt_tokens", "Prefill tokens processed.", counters.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", counters.generated_tokens)
        yield self._counter("num_preemptions", "Requests preempted.", counters.preemptions)
        yield self._successes()
        yield self._first_token_times()
        yield self._configuration()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=_LABELS)
        family.add_metric(self._labels(), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
        family.add_metric(self._labels(), value)
        return family

    def _successes(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success", "Requests that ended, by reason.", labels=(*_LABELS, "finished_reason")
        )
        for reason, count in self._finished.items():
            family.add_metric((*self._labels(), reason), count)
        return family

    def _first_token_times(self) -> Metric:
        family = HistogramMetricFamily(
            "vllm:time_to_first_token_seconds", "Simulated seconds to the first token.", labels=_LABELS
        )
        bounds = [*map(str, TTFT_BUCKETS_SECONDS), "+Inf"]
        buckets = zip(bounds, accumulate(self._driver.ttft_counts), strict=True)
        family.add_metric(self._labels(), list(buckets), self._driver.ttft_sum_seconds)
        return family

    def _configuration(self) -> Metric:
        engine = self._driver.engine
        values = {
            "block_size": str(engine.limits.block_size),
            "num_gpu_blocks": str(engine.total_blocks),
            "enable_prefix_caching": "True",
            "engine": _ENGINE,
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the cache configuration.", labels=tuple(values)
        )
        family.add_metric(tuple(values.values()), 1)
        return family

    def _labels(self) -> Sequence[str]:
        return (self._model, _ENGINE)
