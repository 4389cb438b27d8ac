from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prefix_router.observe.events import BackendChanged, Outcome, RequestRecord
from prefix_router.observe.history import History
from prefix_router.observe.series import Series
from prefix_router.observe.sketch import BUCKETS, bucket_of, merged, new_sketch, quantiles
from prefix_router.routing.fleet import BackendName, BackendState

A, B = BackendName("a"), BackendName("b")


class Clock:
    def __init__(self) -> None:
        self.now = 100_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(clock: Clock) -> History:
    history = History(clock)
    history.set_backends([A, B])
    return history


def changed(record: RequestRecord, **fields: Any) -> RequestRecord:
    return msgspec.structs.replace(record, **fields)


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.4, 3.0, 119.0])
def test_a_quantile_is_at_most_nine_percent_off(seconds: float) -> None:
    sketch = new_sketch()
    sketch[bucket_of(seconds)] += 1
    found = quantiles(sketch)
    assert found is not None
    assert list(found) == pytest.approx([seconds] * 3, rel=0.1)


def test_what_is_out_of_range_counts_at_the_ends() -> None:
    assert bucket_of(0.0) == bucket_of(-1.0) == 0
    assert bucket_of(1e9) == BUCKETS - 1


def test_sketches_merge_by_adding() -> None:
    one, two = new_sketch(), new_sketch()
    one[3], two[3], two[9] = 1, 2, 4
    both = merged([one, two])
    assert (both[3], both[9], sum(both)) == (3, 4, 7)
    assert quantiles(merged([])) is None


def test_quantiles_tell_the_tail_from_the_middle() -> None:
    sketch = new_sketch()
    sketch[bucket_of(0.1)], sketch[bucket_of(5.0)] = 95, 5
    found = quantiles(sketch)
    assert found is not None
    assert list(found) == pytest.approx([0.1, 0.1, 5.0], rel=0.1)


def test_a_request_counts_for_the_fleet_and_its_backend(
    history: History, request_finished: RequestRecord
) -> None:
    history.request_finished(request_finished)
    document = history.document()
    for part in (document["fleet"], document["backends"]["a"]):
        assert (part["requests"][-1], part["prompt"][-1], part["cached"][-1]) == (1, 100, 96)
        assert part["p50"][-1] == pytest.approx(0.4, rel=0.1)
        assert part["recent"]["hit_rate"] == 0.96
    assert document["backends"]["b"]["recent"]["requests"] == 0
    assert document["fleet"]["reasons"] == {"affinity": [0] * 359 + [1]}
    assert document["fleet"]["outcomes"] == {"completed": [0] * 359 + [1]}


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"status": 503, "outcome": Outcome.REJECTED}, 1),
        ({"status": 429, "outcome": Outcome.REJECTED}, 1),
        ({"status": 404, "outcome": Outcome.REJECTED}, 0),
        ({"outcome": Outcome.UPSTREAM_TRUNCATED}, 1),
        ({"outcome": Outcome.CLIENT_DISCONNECTED}, 0),
    ],
)
def test_errors_are_what_the_client_did_not_cause(
    history: History, request_finished: RequestRecord, fields: dict[str, Any], errors: int
) -> None:
    history.request_finished(changed(request_finished, **fields))
    assert history.document()["fleet"]["recent"]["errors"] == errors


def test_a_hit_rate_takes_only_responses_that_report_both(
    history: History, request_finished: RequestRecord
) -> None:
    history.request_finished(changed(request_finished, cached_tokens=None))
    assert history.document()["fleet"]["recent"]["hit_rate"] is None


def test_what_is_older_than_an_hour_is_gone(
    history: History, clock: Clock, request_finished: RequestRecord
) -> None:
    history.request_finished(request_finished)
    clock.now += 3590
    assert sum(history.document()["fleet"]["requests"]) == 1
    clock.now += 20
    document = history.document()
    assert sum(document["fleet"]["requests"]) == 0
    assert len(document["fleet"]["requests"]) == 360
    assert len(document["backends"]["a"]["requests"]) == 120


def test_recent_is_five_minutes(history: History, clock: Clock, request_finished: RequestRecord) -> None:
    history.request_finished(request_finished)
    clock.now += 290
    assert history.document()["fleet"]["recent"]["requests"] == 1
    clock.now += 30
    assert history.document()["fleet"]["recent"]["requests"] == 0


def test_a_reader_gets_only_what_is_newer(
    history: History, clock: Clock, request_finished: RequestRecord
) -> None:
    first = history.document()
    clock.now += 60
    history.request_finished(request_finished)
    second = history.document(first["next"], first["epoch"])
    assert len(second["backends"]["a"]["requests"]) <= 4
    assert second["backends"]["a"]["first"] * 30 <= first["now"] < second["backends"]["a"]["first"] * 30 + 30
    assert sum(second["fleet"]["requests"]) == 1


def test_a_reader_of_another_process_gets_everything(history: History) -> None:
    document = history.document(history.document()["next"], "of another process")
    assert len(document["fleet"]["requests"]) == 360


def test_a_slot_that_is_over_is_not_worked_out_again(clock: Clock) -> None:
    series = Series(10, 6)
    series.at(clock.now).add_first_token(bucket_of(0.1))
    clock.now += 10
    before = series.columns(clock.now)["p50"]
    slot = next(
        slot for slot in series.between(series.number(clock.now) - 1, series.number(clock.now)) if slot
    )
    assert slot.first_token is not None
    slot.first_token[bucket_of(9.0)] += 100
    assert series.columns(clock.now)["p50"] == before


def test_a_backend_takes_its_hour_with_it(history: History, request_finished: RequestRecord) -> None:
    history.backend_changed(BackendChanged(A, BackendState.HEALTHY, BackendState.DOWN, "refused"))
    history.request_finished(request_finished)
    history.set_backends([B])
    history.request_finished(request_finished)
    assert history.document()["backends"].keys() == {"b"}
    history.set_backends([A, B])
    again = history.document()["backends"]["a"]
    assert (sum(again["requests"]), again["change"]) == (0, None)


def test_it_says_since_when_and_why_a_backend_is_in_its_state(history: History, clock: Clock) -> None:
    history.backend_changed(BackendChanged(A, BackendState.HEALTHY, BackendState.DOWN, "refused"))
    clock.now += 12
    change = history.document()["backends"]["a"]["change"]
    assert change == {"state": "down", "cause": "refused", "seconds_ago": 12.0}
