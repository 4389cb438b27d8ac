from __future__ import annotations

import json

from benchmarks.support.vllm.measurement import Answer, Measurement
from benchmarks.vllm_fleet.summary import markdown, summarize


def measurement(strategy: str, *milliseconds: float, hits: int = 50) -> Measurement:
    answers = tuple(
        Answer(f"replica-{number % 2}", "random", value / 1e3, 100, 10)
        for number, value in enumerate(milliseconds)
    )
    return Measurement(strategy, answers, 100 * len(answers), hits, 200, 128, {})


def test_times_are_compared_with_the_strategies_that_know_nothing_of_prefixes() -> None:
    entries = summarize(
        {
            "random": measurement("random", 100, 200, 400),
            "least_outstanding_requests": measurement("least_outstanding_requests", 50, 100, 200),
            "prefix_aware": measurement("prefix_aware", 25, 50, 100),
        }
    )
    assert entries["prefix_aware"]["ttft_ratio_to"]["random"] == {
        "mean": 0.25,
        "p50": 0.25,
        "p90": 0.25,
        "p99": 0.25,
    }
    assert entries["prefix_aware"]["ttft_ratio_to"]["least_outstanding_requests"]["p50"] == 0.5
    assert entries["random"]["ttft_ms"] == {"mean": 233.3, "p50": 200.0, "p90": 400.0, "p99": 400.0}


def test_there_is_no_ratio_to_what_was_not_measured() -> None:
    entries = summarize({"prefix_aware": measurement("prefix_aware", 10)})
    assert entries["prefix_aware"]["ttft_ratio_to"] == {}


def test_hit_rates_are_those_of_the_engines_and_not_of_the_answers() -> None:
    entry = summarize({"random": measurement("random", 1, 2, hits=150)})["random"]
    assert entry["hit_rate"] == 0.75
    assert entry["requests_by_backend"] == {"replica-0": 1, "replica-1": 1}


def test_the_report_has_a_row_for_each_strategy_and_ratio() -> None:
    strategies = summarize(
        {"random": measurement("random", 100, 200), "prefix_aware": measurement("prefix_aware", 50, 50)}
    )
    document = json.loads(
        json.dumps(
            {
                "measured_on": "2026-01-01",
                "command": "make bench-vllm",
                "machine": "a machine",
                "versions": {"vllm": "0"},
                "replicas": 2,
                "threads_per_replica": 1,
                "workload": {"prefixes": 1, "rounds": 2, "concurrency": 4, "concurrency_threshold": 3},
                "strategies": strategies,
            }
        )
    )
    text = markdown(document)
    assert "| `prefix_aware` | 25.0% | 100.0% | 50 | 50 | 50 | 50 | 1, 1 |" in text
    assert "| `prefix_aware` | `random` | 0.33 | 0.50 | 0.25 | 0.25 |" in text
