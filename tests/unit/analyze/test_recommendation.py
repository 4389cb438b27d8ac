from __future__ import annotations

from typing import Any

import pytest

from prefix_router.analyze.contenders import AUTO, Contender
from prefix_router.analyze.recommendation import LengthChoice, choose_length, choose_threshold

REPLICAS = 4


def row(hits: float, busiest: float = 0.25, p99: float | None = 100.0) -> dict[str, Any]:
    return {"hit_rate": hits, "share_max": busiest, "ttft_ms": {"p99": p99}}


def choose(lengths: dict[int, dict[str, Any]], auto: dict[str, Any] | None = None) -> LengthChoice:
    results = [(Contender("random", "random"), row(0.99))]
    results += [
        (Contender(f"n {tokens}", "prefix_aware", tokens), found) for tokens, found in lengths.items()
    ]
    if auto is not None:
        results.append((AUTO, auto))
    return choose_length(results, REPLICAS)


def test_the_shortest_of_the_good_ones_is_chosen() -> None:
    choice = choose({128: row(0.30), 512: row(0.595), 1024: row(0.60), 4096: row(0.60)})
    assert choice.contender.prefix_tokens == 512
    assert choice.met
    assert choice.why == (
        "The shortest that hits 59.5% of the prompt tokens (at best 60.0%) and gives the busiest replica "
        "1.00 times its fair share."
    )


def test_one_that_loads_a_replica_too_much_is_not() -> None:
    choice = choose({128: row(0.60, busiest=0.9), 1024: row(0.59, busiest=0.37)})
    assert choice.contender.prefix_tokens == 1024
    assert choice.met


def test_auto_is_chosen_where_it_is_as_good() -> None:
    choice = choose({512: row(0.60)}, auto=row(0.595))
    assert choice.contender is AUTO
    assert "512 tokens would do as well today" in choice.why


def test_auto_is_chosen_where_no_length_does_both() -> None:
    choice = choose({128: row(0.60, busiest=0.9), 4096: row(0.2)}, auto=row(0.60))
    assert choice.contender is AUTO
    assert choice.why.endswith("no fixed length does both.")


@pytest.mark.parametrize("auto", [row(0.5), row(0.6, busiest=0.9)])
def test_auto_is_not_chosen_where_it_is_worse(auto: dict[str, Any]) -> None:
    assert choose({512: row(0.60)}, auto).contender.prefix_tokens == 512


def test_the_most_even_is_chosen_where_none_is_even_and_that_is_said() -> None:
    choice = choose({128: row(0.60, busiest=0.9), 1024: row(0.60, busiest=0.7), 4096: row(0.1)})
    assert choice.contender.prefix_tokens == 1024
    assert not choice.met
    assert "nothing that hits as much is more even" in choice.why


def test_where_nothing_hits_nothing_can_be_told() -> None:
    choice = choose({128: row(0.0), 1024: row(0.001), 4096: row(0.0)}, auto=row(0.0))
    assert choice.contender.prefix_tokens == 1024
    assert choice.why == "No length finds anything: none is better than another."


def test_the_threshold_nearest_to_the_default_stays_where_it_makes_no_difference() -> None:
    choice = choose_threshold({8: row(0.5), 64: row(0.5), 256: row(0.5)})
    assert choice.threshold == 64
    assert choice.why.startswith("From 8 to 256 makes no difference")


def test_a_threshold_that_loses_hits_is_not_chosen() -> None:
    rows = {16: row(0.3), 64: row(0.4), 128: row(0.6), 256: row(0.6)}
    choice = choose_threshold(rows)
    assert choice.threshold == 128
    assert choice.rows is rows
    assert choice.why.endswith("as with 128, 256; worse with 16, 64.")


def test_a_threshold_with_slow_first_tokens_is_not_chosen() -> None:
    assert choose_threshold({16: row(0.6), 64: row(0.6, p99=900.0)}).threshold == 16


def test_where_none_is_good_the_one_that_loses_least_is() -> None:
    choice = choose_threshold({8: row(0.3, p99=100.0), 64: row(0.54, p99=115.0), 256: row(0.6, p99=900.0)})
    assert choice.threshold == 64
    assert choice.why.startswith("No value is best for hits and for the slowest first tokens")


def test_a_threshold_is_chosen_where_nothing_hits_and_nothing_answers() -> None:
    assert choose_threshold({8: row(0.0, p99=None), 64: row(0.0, p99=None)}).threshold == 64
