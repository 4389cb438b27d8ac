"""What counting a finished request costs, and one scrape of a large fleet.

The scrape is the worst case: every backend has had every reason that the default strategy gives, in four
status classes. The access log's line is thrown away where the log's writer would take it over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import product

from benchmarks.micro.case import Case, Run, again, each
from prefix_router.observe.events import EngineSample, Observer, Outcome, RequestRecord
from prefix_router.observe.fanout import Fanout
from prefix_router.observe.logs import AccessLog, set_level
from prefix_router.observe.metrics import Metrics
from prefix_router.observe.totals import Totals
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName

_BACKENDS = 100
_REASONS = (Reason.AFFINITY, Reason.OVERFLOW, Reason.SATURATED, Reason.FAILOVER, Reason.KEYLESS)
_ENDS = (
    (200, Outcome.COMPLETED),
    (400, Outcome.COMPLETED),
    (502, Outcome.UPSTREAM_FAILED),
    (200, Outcome.CLIENT_DISCONNECTED),
)
_NAMES = [BackendName(f"10.0.0.{number}:8000") for number in range(_BACKENDS)]


def cases() -> list[Case]:
    return [
        Case("request_finished: metrics", _BACKENDS, lambda: counting([counters()])),
        Case(
            "request_finished: fan-out to metrics, totals, access log off",
            _BACKENDS,
            lambda: counting([counters(), Totals(), AccessLog(requests=False)]),
        ),
        Case(
            "request_finished: fan-out to metrics, totals, access log on",
            _BACKENDS,
            logging_requests,
        ),
        Case(f"render, {_BACKENDS} backends", 1, rendering),
    ]


class Discard(logging.Handler):
    """Throws records away."""

    def emit(self, record: logging.LogRecord) -> None:
        """Do nothing."""


def counting(observers: Sequence[Observer]) -> Run:
    observer = observers[0] if len(observers) == 1 else Fanout(observers)
    return each(observer.request_finished, [finished(name) for name in _NAMES])


def logging_requests() -> Run:
    set_level("info")
    logging.getLogger().addHandler(Discard())
    return counting([counters(), Totals(), AccessLog(requests=True)])


def rendering() -> Run:
    metrics = counters()
    for name, reason, (status, outcome) in product(_NAMES, _REASONS, _ENDS):
        metrics.request_finished(finished(name, reason, status, outcome))
    for name in _NAMES:
        metrics.engine_sampled(EngineSample(name, 7, 0, 0.5, 1e6, 9e5))
    return again(metrics.render, 1)


def counters() -> Metrics:
    metrics = Metrics(lambda: dict.fromkeys(_NAMES, 7))
    metrics.set_backends(_NAMES)
    return metrics


def finished(
    backend: BackendName,
    reason: Reason = Reason.AFFINITY,
    status: int = 200,
    outcome: Outcome = Outcome.COMPLETED,
) -> RequestRecord:
    return RequestRecord(
        request_id="0b1c7d54f0f94f1f8b8f7c1f1d3f6a52",
        method="POST",
        path="/v1/chat/completions",
        api="chat",
        model="meta-llama/Llama-3.1-70B-Instruct",
        stream=True,
        status=status,
        outcome=outcome,
        backend=backend,
        reason=reason,
        home=backend,
        key=0x1234_5678_9ABC_DEF0,
        attempts=1,
        retry_causes=(),
        request_bytes=32_000,
        response_bytes=60_000,
        duration_seconds=4.2,
        router_seconds=0.0003,
        first_byte_seconds=0.31,
        first_token_seconds=0.32,
        prompt_tokens=8000,
        cached_tokens=7984,
        completion_tokens=200,
    )
