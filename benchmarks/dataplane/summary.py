"""What all rounds say together: medians, what a router adds to direct, and ratios to our own router."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.dataplane.measure import Sample
from benchmarks.dataplane.numbers import median, median_ratio
from benchmarks.dataplane.routers import DIRECT, OWN

BUSY = 0.95
"""A core that is busy for a greater share of the time is at its limit."""
DISTURBED = 0.15
"""Programs that have no part in the measurement disturb it when they use more cores than this."""


@dataclass(frozen=True, slots=True)
class Row:
    """One router under one load; medians over the rounds, None for what cannot be said.

    rate: requests a second. added: milliseconds more than the same load takes without a router. first: of
    the time until a stream's first event. cpu_ratio, rate_ratio: to prefix_router, within each round.
    """

    workload: str
    router: str
    rounds: int
    rate: float | None
    cpu_us: float | None
    p50_ms: float | None
    added_p50_ms: float | None
    added_p99_ms: float | None
    added_first_p50_ms: float | None
    memory_mb: float | None
    errors: int
    rate_ratio: float | None
    cpu_ratio: float | None
    load_core_busy: float | None
    router_core_busy: float | None
    notes: tuple[str, ...]


def with_base(samples: Sequence[Sample]) -> list[Sample]:
    """Give every sample the latencies of the direct one of its round and load, where it has none."""
    direct = {(s.round, s.workload): s.load for s in samples if s.router == DIRECT and s.load}
    based = []
    for sample in samples:
        base = direct.get((sample.round, sample.workload))
        if sample.base_p50_us is None and base is not None and sample.router != DIRECT:
            sample = replace(
                sample,
                base_p50_us=base.p50_us,
                base_p99_us=base.p99_us,
                base_first_p50_us=base.first_p50_us,
            )
        based.append(sample)
    return based


def summarize(samples: Sequence[Sample], reference: str = OWN) -> list[Row]:
    """Return a row for each load and router, in the order in which they first occur."""
    based = with_base(samples)
    workloads = list(dict.fromkeys(sample.workload for sample in based))
    routers = sorted(dict.fromkeys(sample.router for sample in based), key=lambda name: name == DIRECT)
    rows = []
    for workload in workloads:
        ours = [s for s in based if s.workload == workload and s.router == reference]
        for router in routers:
            theirs = [s for s in based if s.workload == workload and s.router == router]
            if theirs:
                rows.append(_row(workload, router, theirs, ours))
    return rows


def _row(workload: str, router: str, samples: list[Sample], ours: list[Sample]) -> Row:
    loads = [sample.load for sample in samples if sample.load is not None]
    return Row(
        workload,
        router,
        len(loads),
        median(map(rate, samples)),
        median(map(cpu, samples)),
        median(load.p50_us / 1000 for load in loads),
        median(map(added_p50, samples)),
        median(map(added_p99, samples)),
        median(map(added_first, samples)),
        median(sample.memory_mb for sample in samples),
        sum(load.errors for load in loads),
        _ratio(rate, samples, ours),
        _ratio(cpu, samples, ours),
        median(load.busy.load for load in loads),
        median(load.busy.router for load in loads),
        tuple(_notes(router, samples)),
    )


def rate(sample: Sample) -> float | None:
    """Return requests a second."""
    return sample.load.requests / sample.load.seconds if sample.load else None


def cpu(sample: Sample) -> float | None:
    """Return the router's own CPU time per request in microseconds."""
    return sample.cpu_us


def added_p50(sample: Sample) -> float | None:
    """Return by how many milliseconds the median latency is above the direct one."""
    return _more(sample.load.p50_us, sample.base_p50_us) if sample.load else None


def added_p99(sample: Sample) -> float | None:
    """Return by how many milliseconds the 99th percentile is above the direct one."""
    return _more(sample.load.p99_us, sample.base_p99_us) if sample.load else None


def added_first(sample: Sample) -> float | None:
    """Return by how many milliseconds the median time to a stream's first event is above the direct one."""
    return _more(sample.load.first_p50_us, sample.base_first_p50_us) if sample.load else None


def _more(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else (value - base) / 1000


def _ratio(
    of: Callable[[Sample], float | None], samples: Iterable[Sample], ours: Iterable[Sample]
) -> float | None:
    return median_ratio(
        {sample.round: of(sample) for sample in samples}, {sample.round: of(sample) for sample in ours}
    )


def _notes(router: str, samples: list[Sample]) -> Iterable[str]:
    """Say what a reader must know; `2/3`: in two of three rounds."""
    count = len(samples)
    failures = [sample.failure.strip().splitlines()[-1] for sample in samples if sample.failure]
    if failures:
        yield f"no result {len(failures)}/{count}: {failures[0]}"
    loads = [sample.load for sample in samples if sample.load is not None]
    disturbed = [load for load in loads if load.busy.others > DISTURBED]
    limited = [load for load in loads if load.busy.load > BUSY and load not in disturbed]
    if limited and router != DIRECT:
        yield f"load at its limit {len(limited)}/{count}"
    if disturbed:
        yield f"disturbed {len(disturbed)}/{count}"
    kinds = {kind for load in loads for kind in load.kinds_of_errors}
    if kinds:
        yield f"errors: {', '.join(sorted(kinds))}"
