from __future__ import annotations

import json

import pytest

from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.result import FleetResult, Outcome, quantile
from prefix_router.routing.decision import Reason
from tests.support.simulated import simulated


def outcome(
    arrival: float,
    first_token: float | None,
    end: float,
    *,
    replica: str | None = "replica-0",
    cached_blocks: int = 0,
    reason: Reason | None = Reason.AFFINITY,
    failed: bool = False,
) -> Outcome:
    """A request of ten blocks and 50 output tokens."""
    request = simulated(range(10), arrival, output=50)
    return Outcome.of(request, end, replica, cached_blocks * 16, first_token, reason, failed=failed)


def result_of(*outcomes: Outcome) -> FleetResult:
    return FleetResult(FleetPlan("plain_ring", routers=4), outcomes)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1.0, 10)])
def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed(share: float, value: int) -> None:
    assert quantile(list(range(1, 11)), share) == value


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 0.5) is None


def test_a_row_says_it_all() -> None:
    row = result_of(
        outcome(0.0, 0.1, 1.0, cached_blocks=5),
        outcome(1.0, 1.2, 4.0, replica="replica-1", reason=Reason.OVERFLOW),
        outcome(2.0, 2.3, 5.0, cached_blocks=9),
        outcome(3.0, 3.4, 10.0),
    ).row("made up", 12.5)
    assert row == {
        "workload": "made up",
        "strategy": "plain_ring",
        "load": 12.5,
        "routers": 4,
        "requests": 4,
        "failed": 0,
        "hit_rate": 0.35,
        "ttft_ms": {"p50": 200.0, "p90": 400.0, "p99": 400.0},
        "e2e_ms": {"p50": 3000.0, "p90": 7000.0, "p99": 7000.0},
        "share_max": 0.75,
        "overflow_rate": 0.25,
        "throughput_tokens_per_second": 20.0,
    }
    assert json.loads(json.dumps(row)) == row


def test_failed_requests_count_as_such_and_nowhere_else() -> None:
    whole = outcome(0.0, 0.1, 1.0, cached_blocks=5)
    lost = outcome(0.0, 90.0, 99.0, replica="replica-1", failed=True)
    refused = outcome(0.0, None, 0.0, replica=None, reason=None, failed=True)
    row = result_of(whole, lost, refused).row("made up", 1)
    assert (row["requests"], row["failed"], row["share_max"]) == (3, 2, 0.5)
    alone = result_of(whole).row("made up", 1)
    for column in ("hit_rate", "ttft_ms", "e2e_ms", "throughput_tokens_per_second"):
        assert row[column] == alone[column]


def test_a_row_of_nothing_has_no_times() -> None:
    row = result_of().row("nothing", 1)
    assert row["ttft_ms"] == row["e2e_ms"] == {"p50": None, "p90": None, "p99": None}
    assert row["hit_rate"] == row["share_max"] == row["throughput_tokens_per_second"] == 0.0
