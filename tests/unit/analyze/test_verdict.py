from __future__ import annotations

from typing import Any

import pytest

from prefix_router.analyze.verdict import Expectation, judge


def row(
    name: str, hits: float, p50: float | None = 100.0, p99: float | None = 500.0, throughput: float = 1000.0
) -> dict[str, Any]:
    return {
        "strategy": name,
        "hit_rate": hits,
        "ttft_ms": {"p50": p50, "p99": p99},
        "throughput_tokens_per_second": throughput,
    }


RANDOM = row("random", 0.25)


@pytest.mark.parametrize(
    ("hits", "expectation"),
    [
        (0.65, Expectation.A_LOT),
        (0.64, Expectation.MUCH),
        (0.40, Expectation.MUCH),
        (0.39, Expectation.SOME),
        (0.30, Expectation.SOME),
        (0.29, Expectation.LITTLE),
        (0.20, Expectation.LITTLE),
    ],
)
def test_what_is_found_beyond_chance_counts(hits: float, expectation: Expectation) -> None:
    verdict = judge(0.8, 1000, row("random", 0.25), row("prefix_aware", hits))
    assert verdict.expectation is expectation
    assert verdict.gained == pytest.approx(hits - 0.25)
    assert verdict.remarks == ()


def test_it_says_little_where_little_recurs_whatever_was_found() -> None:
    verdict = judge(0.04, 1000, row("random", 0.0), row("prefix_aware", 0.9))
    assert verdict.expectation is Expectation.LITTLE
    assert verdict.headline == "Expect little: 4% of your prompt tokens recur"


def test_much_that_recurs_and_that_everybody_has_is_little() -> None:
    verdict = judge(0.95, 1000, row("random", 0.93), row("prefix_aware", 0.95))
    assert verdict.expectation is Expectation.LITTLE
    assert verdict.headline == (
        "Expect little: 95% of your prompt tokens recur, but chance finds nearly as many of them"
    )


def test_the_sentence_has_hits_and_times_of_both() -> None:
    verdict = judge(0.8, 1000, RANDOM, row("prefix_aware 512", 0.79, 30.0, 90.0))
    assert verdict.sentence == (
        "prefix_aware 512 finds 79% in a cache where random finds 25%; "
        "time to first token: median 100 → 30 ms, P99 500 → 90 ms."
    )
    without = judge(0.8, 1000, row("random", 0.004, None, None), row("prefix_aware", 0.79))
    assert without.sentence == "prefix_aware finds 79% in a cache where random finds 0.4%."


def test_few_requests_are_said() -> None:
    assert "Only 199 requests" in judge(0.8, 199, RANDOM, row("prefix_aware", 0.79)).remarks[0]


def test_slower_first_tokens_are_said() -> None:
    (remark,) = judge(0.8, 1000, RANDOM, row("prefix_aware", 0.79, p99=560.0)).remarks
    assert remark == "The slowest first tokens come later than with random: P99 500 ms → 560 ms."


def test_a_baseline_that_cannot_keep_up_is_said() -> None:
    (remark,) = judge(0.8, 1000, row("random", 0.25, throughput=900), row("prefix_aware", 0.79)).remarks
    assert remark.startswith("random cannot keep up with this load (900 of 1,000 tokens a second)")


def test_another_way_that_is_clearly_sooner_is_said() -> None:
    ours = row("prefix_aware", 0.79)
    (remark,) = judge(0.8, 1000, RANDOM, ours, [row("adaptive", 0.78, 100.0, 300.0)]).remarks
    assert remark == "adaptive brings first tokens sooner still: P99 500 ms → 300 ms."


@pytest.mark.parametrize("other", [row("adaptive", 0.5, 10.0, 10.0), row("adaptive", 0.79, 95.0, 470.0)])
def test_another_way_that_hits_less_or_is_hardly_sooner_is_not_said(other: dict[str, Any]) -> None:
    assert judge(0.8, 1000, RANDOM, row("prefix_aware", 0.79), [other]).remarks == ()
