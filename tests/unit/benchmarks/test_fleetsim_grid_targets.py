"""The judge of the routing results, on rows made up so that the answer is known."""

from __future__ import annotations

from typing import Any

from benchmarks.fleetsim_grid.cases import LOADS, STRATEGIES
from benchmarks.fleetsim_grid.targets import Verdict, verdicts


def row(strategy: str, load: float, routers: int = 1, **changes: Any) -> dict[str, Any]:
    times = {"p50": 100.0, "p90": 200.0, "p99": 400.0} | changes.pop("ttft_ms", {})
    even = {"hit_rate": 0.79, "share_max": 0.145, "share_min": 0.14}
    return {"strategy": strategy, "load": load, "routers": routers, "ttft_ms": times, **even, **changes}


def workload(*special: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """All strategies alike at all loads, but for these rows."""
    rows = {(name, load, 1): row(name, load) for load in LOADS for name in STRATEGIES}
    rows |= {(some["strategy"], some["load"], some["routers"]): some for some in special}
    return {"rows": list(rows.values()), **parts}


def verdict(target: str, **workloads: dict[str, Any]) -> Verdict:
    (found,) = (found for found in verdicts(workloads) if target in found.target)
    return found


def test_the_lowest_time_may_be_missed_by_two_percent() -> None:
    within = workload(row("adaptive", 0.3, ttft_ms={"p90": 204.0}))
    beyond = workload(row("adaptive", 0.6, ttft_ms={"p90": 206.0}))
    found = verdict("lowest P90", one=within, other=beyond)
    assert (found.places, found.missed) == (6, ["other at 0.6: +3% over `random`"])
    assert verdict("lowest P50", one=within, other=beyond).missed == []


def test_the_best_hit_rate_may_be_missed_by_a_point() -> None:
    some = workload(row("adaptive", 0.3, hit_rate=0.781), row("adaptive", 0.9, hit_rate=0.77))
    assert verdict("within one point", w=some).missed == ["w at 0.9: 2.0 points below `random`"]


def test_where_nothing_is_shared_it_is_compared_with_load_alone() -> None:
    some = workload(row("least_outstanding_requests", 0.9, ttft_ms={"p99": 300.0}))
    assert verdict("`unique`", unique=some).missed == ["P99 at 0.9: +33.3%"]
    assert verdict("`unique`", other=some).places == 0


def test_gains_over_random_are_of_the_published_workload() -> None:
    slow = [row("random", load, ttft_ms={"p50": 1000.0, "p90": 250.0}) for load in LOADS]
    some = workload(*slow)
    assert verdict("P50 is 77%", sagemaker=some).missed == []
    assert verdict("P90 is 37%", sagemaker=some).missed == [
        f"at {load:g}: short by 17.0 points" for load in LOADS
    ]
    uneven = workload(row("adaptive", 0.3, share_max=0.16, share_min=0.12))
    assert len(verdict("busiest replica has", sagemaker=uneven).missed) == 1
    assert len(verdict("idlest replica has", sagemaker=uneven).missed) == 1


def test_a_found_depth_is_compared_with_the_best_of_the_lengths() -> None:
    lengths = [row("plain_ring:256", 0.6, hit_rate=0.85, share_max=1.0), row("plain_ring:512", 0.6)]
    found = verdict("best length", w=workload(lengths=lengths))
    assert found.missed == ["w: 92.9% of `plain_ring:256`'s, whose busiest replica gets 100%"]
    wide = workload(row("prefix_aware:auto", 0.6, share_max=0.3))
    assert verdict("1.5 times", w=wide).missed == ["w, `prefix_aware:auto`: 2.10 times"]


def test_under_overload_hit_rates_are_compared_with_the_rings() -> None:
    some = workload(row("plain_ring", 1.1), row("prefix_aware", 1.1), row("adaptive", 1.1, hit_rate=0.7))
    assert verdict("load 1.1", w=some).missed == ["w, `adaptive`: 9.0 points below"]


def test_several_routers_are_compared_with_one() -> None:
    some = workload(row("adaptive", 0.3, 8, hit_rate=0.75), row("adaptive", 0.6, 8, hit_rate=0.7))
    found = verdict("8 routers `adaptive`", w=some)
    assert (found.places, found.missed) == (2, ["w at 0.6: 9.0 points lost"])


def test_changes_are_judged_by_what_they_move_and_how_long_it_shows() -> None:
    change = {
        "strategy": "adaptive",
        "change": "join",
        "moved_share": 0.2,
        "moved_share_if_nothing_happens": 0.03,
        "recovery_seconds": 5.0,
        "refill_seconds": 4.0,
    }
    some = workload(changes=[change, {**change, "moved_share": 0.15, "recovery_seconds": 0.0}])
    assert verdict("moves", w=some).missed == ["w, join, `adaptive`: 17.0%"]
    assert verdict("recover", w=some).missed == ["w, join, `adaptive`: 5.0"]
