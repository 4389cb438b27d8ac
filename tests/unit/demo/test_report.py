from __future__ import annotations

import argparse
import json

from prefix_router.demo.arguments import DemoPlan, add_arguments, read_arguments
from prefix_router.demo.measure import Measurement
from prefix_router.demo.report import as_json, as_table

RESULTS = {
    "random": Measurement(0.25, [100.0] * 9 + [1000.0], {"replica-1": 0.5, "replica-2": 0.5}, {"random": 10}),
    "prefix_aware": Measurement(0.75, [20.0] * 9 + [500.0], {"replica-1": 1.0}, {"affinity": 10}),
}


def make_plan() -> DemoPlan:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read_arguments(parser.parse_args(["--once", "--prefixes", "2"]))


def rows() -> dict[str, list[str]]:
    table = as_table(make_plan(), RESULTS)
    return {line[:24].strip(): line[24:].split() for line in table.splitlines()[4:]}


def test_json_has_each_strategy_with_its_rate_times_and_shares() -> None:
    data = json.loads(json.dumps(as_json(make_plan(), RESULTS)))
    assert data["strategies"]["random"] == {
        "hit_rate": 0.25,
        "ttft_ms": {"p50": 100.0, "p90": 100.0, "p99": 1000.0},
        "share": {"replica-1": 0.5, "replica-2": 0.5},
        "reasons": {"random": 10},
        "requests": 10,
    }
    assert list(data["strategies"]) == ["random", "prefix_aware"]


def test_json_says_what_was_measured() -> None:
    data = as_json(make_plan(), RESULTS)
    assert data["replicas"] == 7
    assert data["workload"]["prefixes"] == 2
    assert data["time_scale"] > 0


def test_the_table_shows_what_the_last_strategy_gains_over_the_first() -> None:
    table = rows()
    assert table["KV cache hit rate"] == ["25.0%", "75.0%", "3.0", "x"]
    assert table["time to first token P50"] == ["100", "ms", "20", "ms", "-80%"]
    assert table["time to first token P99"] == ["1000", "ms", "500", "ms", "-50%"]


def test_the_table_has_a_row_for_each_replica_that_anybody_used() -> None:
    table = rows()
    assert table["requests to replica-1"] == ["50.0%", "100.0%"]
    assert table["requests to replica-2"] == ["50.0%", "0.0%"]


def test_a_baseline_without_a_single_hit_has_no_ratio() -> None:
    none = Measurement(0.0, [1.0], {}, {})
    assert "-" in as_table(make_plan(), {"random": none, "prefix_aware": RESULTS["prefix_aware"]})
