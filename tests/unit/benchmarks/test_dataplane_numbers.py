"""What the data-plane benchmark makes of what its tools print, and of several rounds."""

from __future__ import annotations

import json

import pytest

from benchmarks.dataplane.__main__ import order
from benchmarks.dataplane.loads import Load, LoadError, parse_client, parse_wrk
from benchmarks.dataplane.measure import Sample, pause_for
from benchmarks.dataplane.numbers import median, median_ratio, percentile
from benchmarks.dataplane.processes import Busy, Cores
from benchmarks.dataplane.summary import Row, summarize

WRK = (
    'JSON {"requests":1010,"microseconds":2000000,"p50_us":700,"p99_us":2100,"max_us":9000,'
    '"connect":0,"read":3,"write":0,"timeout":0,"status":10}'
)


def sample(
    router: str,
    number: int,
    *,
    rate: float = 100.0,
    cpu_us: float | None = None,
    busy: float = 0.5,
    **more: object,
) -> Sample:
    load = Load(round(rate * 2), 2.0, p50_us=2_000, p99_us=8_000, errors=0, busy=Busy(1.0, busy, others=0.0))
    return Sample(number, router, "small", load, cpu_us, **more)  # type: ignore[arg-type]


def row(rows: list[Row], router: str) -> Row:
    return next(row for row in rows if row.router == router)


def test_a_request_with_a_bad_status_is_an_error_and_not_a_request() -> None:
    load = parse_wrk(f"Running 2s test\n  12 requests\n{WRK}\n")
    assert (load.requests, load.seconds, load.p50_us, load.p99_us) == (1000, 2.0, 700, 2100)
    assert load.errors == 13
    assert load.kinds_of_errors == {"read": 3, "status": 10}


def test_output_without_a_result_is_not_taken_for_one() -> None:
    with pytest.raises(LoadError, match="unable to connect"):
        parse_wrk("unable to connect to 127.0.0.1:1")
    with pytest.raises(LoadError, match="Traceback"):
        parse_client("Traceback (most recent call last)\nOSError")
    with pytest.raises(LoadError):
        parse_client("")


def test_the_last_line_of_the_client_is_its_account() -> None:
    account = {"requests": 7, "streams": 7, "seconds": 0.5, "errors": 1, "kinds_of_errors": {"wrong": 1}}
    times = {"p50_us": 3, "p99_us": 4, "first_p50_us": 1, "first_p99_us": 2}
    load = parse_client("warning\n" + json.dumps(account | times))
    assert (load.requests, load.errors, load.first_p50_us) == (7, 1, 1)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([], 0.5) == 0.0


def test_medians_leave_out_what_is_missing() -> None:
    assert median([3.0, None, 1.0]) == 2.0
    assert median([None]) is None


def test_a_ratio_is_taken_within_a_round() -> None:
    slow_second_round = {0: 10.0, 1: 100.0, 2: None}
    assert median_ratio({0: 20.0, 1: 200.0, 2: 5.0}, slow_second_round) == 2.0
    assert median_ratio({5: 1.0}, slow_second_round) is None


def test_a_row_holds_medians_ratios_and_what_was_added_to_direct() -> None:
    samples = []
    for number, speed in enumerate((1.0, 0.5, 1.0)):
        samples += [
            sample("direct", number, rate=1000),
            sample("prefix_router", number, rate=200 * speed, cpu_us=50 / speed),
            sample("other", number, rate=100 * speed, cpu_us=150 / speed, base_p50_us=500, base_p99_us=1000),
        ]
    rows = summarize(samples)
    assert [each.router for each in rows] == ["prefix_router", "other", "direct"]
    other = row(rows, "other")
    assert (other.rate, other.cpu_us, other.rate_ratio, other.cpu_ratio) == (100, 150, 0.5, 3.0)
    assert (other.added_p50_ms, other.added_p99_ms) == (1.5, 7.0)
    assert row(rows, "prefix_router").added_p50_ms == 0.0
    assert row(rows, "direct").added_p50_ms is None


def test_a_load_at_its_limit_is_said() -> None:
    rows = summarize([sample("prefix_router", 0, busy=0.5), sample("prefix_router", 1, busy=0.97)])
    assert rows[0].notes == ("load at its limit 1/2",)


def test_other_programs_are_said_and_their_work_is_not_taken_for_the_loads() -> None:
    load = Load(1, 1.0, 1, 1, 0, busy=Busy(1.0, load=1.0, others=0.4))
    rows = summarize([Sample(0, "prefix_router", "small", load)])
    assert rows[0].notes == ("disturbed 1/1",)


def test_a_router_that_did_not_start_has_a_row_that_says_so() -> None:
    rows = summarize([Sample(0, "other", "small", failure="it did not start: a\nlast line of its log\n")])
    assert rows[0].rate is None
    assert rows[0].notes == ("no result 1/1: last line of its log",)


def test_every_round_has_another_order_of_the_same_names() -> None:
    orders = [order("abcd", number) for number in range(4)]
    assert all(sorted(each) == list("abcd") for each in orders)
    assert len({tuple(each) for each in orders}) == 4


@pytest.mark.parametrize(
    ("available", "for_router", "expected"),
    [
        ([0, 1], 1, ({1}, {0}, {0})),
        ([0, 1, 2], 1, ({2}, {0}, {1})),
        ([0, 1], 2, ({0, 1}, {0, 1}, {0, 1})),
        ([0, 1, 2], 2, ({1, 2}, {0}, {0})),
        ([0, 1, 2, 3], 2, ({2, 3}, {0}, {1})),
    ],
)
def test_the_router_has_its_cores_for_itself_where_there_are_enough(
    available: list[int], for_router: int, expected: tuple[set[int], ...]
) -> None:
    cores = Cores.of(available, for_router)
    assert [set(cores.router), set(cores.load), set(cores.backend)] == list(expected)


def test_one_core_is_not_enough() -> None:
    with pytest.raises(ValueError, match="two cores"):
        Cores.of([0])


def test_pauses_make_the_rate() -> None:
    assert pause_for(1000, 64) == pytest.approx(63.5)
    assert pause_for(1_000_000, 64) == 0.0
