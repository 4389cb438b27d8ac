from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from prefix_router.observe.events import (
    BackendChanged,
    EngineSample,
    Outcome,
    RequestRecord,
    RetryCause,
)
from prefix_router.observe.totals import Totals
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName, BackendState

A, B = BackendName("a"), BackendName("b")
EVENT = RequestRecord(
    request_id="r",
    method="POST",
    path="/v1/completions",
    api="completions",
    model="m",
    stream=False,
    status=200,
    outcome=Outcome.COMPLETED,
    backend=A,
    reason=Reason.AFFINITY,
    home=A,
    key=1,
    attempts=1,
    retry_causes=(),
    request_bytes=1,
    response_bytes=1,
    duration_seconds=0.1,
    router_seconds=0.001,
)


def totals(*changes: dict[str, Any]) -> Totals:
    counted = Totals()
    for change in changes:
        counted.request_finished(replace(EVENT, **change))
    return counted


def test_requests_are_counted_by_backend_reason_and_outcome() -> None:
    counted = totals({}, {"backend": B, "reason": Reason.OVERFLOW}, {"retry_causes": (RetryCause.RESET,)})
    assert counted.requests == 3
    assert counted.by_backend == {"a": 2, "b": 1}
    assert counted.by_reason == {Reason.AFFINITY: 2, Reason.OVERFLOW: 1}
    assert counted.by_outcome == {Outcome.COMPLETED: 3}
    assert counted.retries == 1


def test_an_answer_of_the_routers_own_belongs_to_no_backend() -> None:
    counted = totals({"backend": None, "reason": None, "outcome": Outcome.REJECTED})
    assert counted.by_backend == {}
    assert counted.share(A) == 0.0


def test_the_share_is_a_fraction_of_what_was_sent() -> None:
    assert totals({}, {}, {}, {"backend": B}).share(A) == pytest.approx(0.75)


def test_tokens_count_only_where_a_response_reports_both() -> None:
    counted = totals({"prompt_tokens": 100, "cached_tokens": 40}, {"prompt_tokens": 50}, {"cached_tokens": 7})
    assert (counted.prompt_tokens, counted.cached_tokens) == (100, 40)


def test_what_is_known_of_an_engine_goes_with_it() -> None:
    counted = totals({}, {"backend": B})
    counted.engine_sampled(EngineSample(A, requests_running=1))
    counted.engine_sampled(EngineSample(B, requests_running=2))
    counted.backend_changed(BackendChanged(A, BackendState.HEALTHY, BackendState.DOWN, "x"))
    assert set(counted.engine) == {"b"}
    counted.set_backends([A])
    assert counted.by_backend == {"a": 1}
    assert counted.engine == {}


def test_the_last_requests_of_who_has_left_bring_nothing_back() -> None:
    counted = totals()
    counted.set_backends([A])
    counted.request_finished(replace(EVENT, backend=B))
    counted.engine_sampled(EngineSample(B, requests_running=1))
    assert (counted.requests, counted.by_backend, counted.engine) == (1, {}, {})
    assert counted.by_reason == {Reason.AFFINITY: 1}
