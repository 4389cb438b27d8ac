from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from prefix_router.engine.cost import PROFILES
from prefix_router.engine.engine import Engine
from prefix_router.engine.limits import EngineLimits
from prefix_router.engine.request import EngineRequest
from prefix_router.openai_api.engine_metrics import parse_engine_metrics
from prefix_router.simulate.driver import EngineDriver
from prefix_router.simulate.metrics import EngineMetrics

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


def make_metrics(driver: EngineDriver, finished: dict[str, int] | None = None) -> EngineMetrics:
    return EngineMetrics(driver, "m", {} if finished is None else finished)


def make_driver() -> EngineDriver:
    limits = EngineLimits(block_size=4, step_token_budget=64, max_sequences=2)
    return EngineDriver(Engine(PROFILES["llama-3.1-8b-h100"], limits, kv_tokens=40))


def samples(text: bytes) -> dict[str, Sample]:
    return {
        sample.name: sample
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_series_carries_the_model_and_the_engine() -> None:
    found = samples(make_metrics(make_driver(), {"stop": 0}).render())
    del found["vllm:cache_config_info"]
    assert {(sample.labels["model_name"], sample.labels["engine"]) for sample in found.values()} == {
        ("m", "0")
    }


def test_the_names_are_vllms() -> None:
    found = samples(make_metrics(make_driver(), {"stop": 0}).render())
    assert set(found) == {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:num_preemptions_total",
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:cache_config_info",
    }


def test_the_configuration_is_a_label() -> None:
    labels = samples(make_metrics(make_driver()).render())["vllm:cache_config_info"].labels
    assert (labels["block_size"], labels["num_gpu_blocks"], labels["engine"]) == ("4", "10", "0")


def test_values_follow_the_engine() -> None:
    driver = make_driver()
    metrics = make_metrics(driver)
    for _ in range(3):
        driver.engine.add(EngineRequest(10, 2, (1, 2)))
    driver.engine.start_step()
    figures = parse_engine_metrics(metrics.render())
    assert (figures.requests_running, figures.requests_waiting) == (2, 1)
    assert figures.kv_cache_usage_ratio == 0.4  # two shared blocks, and one for each one's last tokens
    assert figures.block_size_tokens == 4
    driver.engine.finish_step()
    while driver.engine.step():
        pass
    found = samples(metrics.render())
    assert found["vllm:prefix_cache_queries_total"].value == 30
    assert found["vllm:prefix_cache_hits_total"].value == 16
    assert found["vllm:prompt_tokens_total"].value == 30
    assert found["vllm:generation_tokens_total"].value == 6


def test_requests_are_counted_by_how_they_ended() -> None:
    text = make_metrics(make_driver(), {"stop": 1, "length": 2, "abort": 3}).render()
    [family] = [
        family
        for family in text_string_to_metric_families(text.decode())
        if family.name == "vllm:request_success"
    ]
    assert {sample.labels["finished_reason"]: sample.value for sample in family.samples} == {
        "stop": 1,
        "length": 2,
        "abort": 3,
    }


def test_first_token_times_are_a_cumulative_histogram() -> None:
    driver = make_driver()
    driver.ttft_counts[0] = 2
    driver.ttft_counts[-1] = 1
    driver.ttft_sum_seconds = 3000.0
    [family] = [
        family
        for family in text_string_to_metric_families(make_metrics(driver).render().decode())
        if family.name == "vllm:time_to_first_token_seconds"
    ]
    buckets = {
        sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")
    }
    assert (buckets["0.001"], buckets["2560.0"], buckets["+Inf"]) == (2, 2, 3)
    assert [s.value for s in family.samples if s.name.endswith("_count")] == [3]
    assert [s.value for s in family.samples if s.name.endswith("_sum")] == [3000.0]
