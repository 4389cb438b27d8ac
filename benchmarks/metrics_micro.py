"""What counting costs: microseconds per finished request, and one scrape of a large fleet.

    python -m benchmarks.metrics_micro [--backends 100]

Prints CPU time, best of five runs. The scrape is the worst case: every backend has had every reason that
the default strategy gives, in four status classes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from time import process_time

from prefix_router.observe.events import EngineSample, Outcome, RequestFinished
from prefix_router.observe.metrics import Metrics
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName

REASONS = (Reason.AFFINITY, Reason.OVERFLOW, Reason.SATURATED, Reason.FAILOVER, Reason.KEYLESS)
ENDS = (
    (200, Outcome.COMPLETED),
    (400, Outcome.COMPLETED),
    (502, Outcome.UPSTREAM_FAILED),
    (200, Outcome.CLIENT_DISCONNECTED),
)
REPEAT = 20_000


def finished(backend: BackendName) -> RequestFinished:
    return RequestFinished(
        request_id="0b1c7d54f0f94f1f8b8f7c1f1d3f6a52",
        method="POST",
        path="/v1/chat/completions",
        api="chat",
        model="meta-llama/Llama-3.1-70B-Instruct",
        stream=True,
        status=200,
        outcome=Outcome.COMPLETED,
        backend=backend,
        reason=Reason.AFFINITY,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", type=int, default=100)
    backends = parser.parse_args().backends
    names = [BackendName(f"10.0.{n // 256}.{n % 256}:8000") for n in range(backends)]
    metrics = Metrics(lambda: dict.fromkeys(names, 7))
    metrics.set_backends(names)
    events = [finished(name) for name in names]
    counting = rendering = float("inf")
    for _ in range(5):
        started = process_time()
        for n in range(REPEAT):
            metrics.request_finished(events[n % backends])
        counting = min(counting, process_time() - started)
    for event, reason, (status, outcome) in product(events, REASONS, ENDS):
        metrics.request_finished(replace(event, reason=reason, status=status, outcome=outcome))
    for name in names:
        metrics.engine_sampled(EngineSample(name, 7, 0, 0.5, 1e6, 9e5))
    for _ in range(5):
        started = process_time()
        text = metrics.render()
        rendering = min(rendering, process_time() - started)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    print(f"request_finished: {counting / REPEAT * 1e6:.2f} µs")
    print(f"render, {backends} backends: {rendering * 1e3:.1f} ms, {series} series, {len(text)} bytes")


if __name__ == "__main__":
    main()
