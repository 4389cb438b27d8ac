"""What workers cost: memory of each process, CPU time for each request, and the counts that they share.

    python -m benchmarks.workers [--workers 1 2 4] [--requests 20000] [--output DIRECTORY]

A router process with so many workers, two backend processes, and as many connections as `CONNECTIONS` on
which one small request follows the other. CPU time is what the system has charged to each process over all
requests, so that it does not matter who else uses the machine; requests a second would. Exit status 1 when a
request was not answered well.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from timeit import repeat
from typing import Any

import psutil

from benchmarks.support.backend_process import BackendProcess
from benchmarks.support.machine import description
from benchmarks.support.report import table, write
from benchmarks.support.router_process import RouterProcess
from prefix_router.workers.shared_counts import SharedCounts

RESULTS = Path(__file__).parent / "results"
CONNECTIONS = 64
_WARM_UP_REQUESTS = 2_000
_REPORT_SECONDS = 0.5
"""Until the workers have told the pool of their last requests, and it has counted them."""
_TIMED = 100_000
_ROUNDS = 7
SETTINGS: dict[str, Any] = {"engine_metrics": {"interval_seconds": 0}, "logging": {"level": "error"}}


@dataclass(frozen=True, slots=True)
class Share:
    """What one process has used. cpu_us: microseconds for each request of the whole run.

    resident_mb includes pages that processes share, own_mb (its unique set) does not.
    """

    resident_mb: float
    own_mb: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the router's own process, and its workers (none with one process)."""

    workers: int
    requests: int
    bad: int
    own_process: Share
    each_worker: list[Share]

    @property
    def workers_cpu_us(self) -> float:
        """CPU time of all workers for each request."""
        return sum(share.cpu_us for share in self.each_worker)


@dataclass(frozen=True, slots=True)
class CountTimes:
    """Microseconds, for in-flight counts shared by so many workers."""

    workers: int
    take_and_give_us: float
    read_us: float


async def run(workers: int, requests: int) -> Run:
    """Start everything, send the requests, say what they cost."""
    backends = [BackendProcess(name) for name in "ab"]
    router = None
    try:
        for backend in backends:
            await backend.start()
        urls = [{"name": backend.name, "url": backend.url} for backend in backends]
        router = RouterProcess({"backends": urls, **SETTINGS}, workers)
        await router.start()
        await send(router.port, _WARM_UP_REQUESTS)
        await asyncio.sleep(_REPORT_SECONDS)
        processes = router.processes()
        before = [cpu_seconds(process) for process in processes]
        bad = await send(router.port, requests)
        await asyncio.sleep(_REPORT_SECONDS)
        shares = [share(process, used, requests) for process, used in zip(processes, before, strict=True)]
    finally:
        if router is not None:
            await router.stop()
        for backend in backends:
            await backend.kill()
    return Run(workers, requests, bad, shares[0], shares[1:])


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def share(process: psutil.Process, cpu_before: float, requests: int) -> Share:
    """Return what a process has used since `cpu_before`, and holds now."""
    memory = process.memory_full_info()
    cpu_us = (cpu_seconds(process) - cpu_before) / requests * 1e6
    return Share(round(memory.rss / 1e6, 1), round(memory.uss / 1e6, 1), round(cpu_us, 1))


async def send(port: int, requests: int) -> int:
    """Send requests over all connections; return how many were not answered well."""
    numbers = count()
    bad = await asyncio.gather(*(_user(port, numbers, requests) for _ in range(CONNECTIONS)))
    return sum(bad)


async def _user(port: int, numbers: count[int], requests: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    bad = 0
    while (number := next(numbers)) < requests:
        body = b'{"messages":[{"role":"user","content":"prefix %d"}]}' % (number % 500)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\n"
            b"X-Nonce: n%d\r\nContent-Length: %d\r\n\r\n%b" % (number, len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        expected = b'{"nonce":"n%d"}' % number
        answer = await reader.readexactly(len(expected))
        bad += not head.startswith(b"HTTP/1.1 200 ") or answer != expected
    writer.close()
    return bad


def time_counts(workers: int) -> CountTimes:
    """Measure the shared counts, as one of so many workers."""
    counts = SharedCounts.create(workers)
    counter = counts.in_flight(1, 1)

    def take_and_give() -> None:
        counter.take()
        counter.give()

    def microseconds(operation: Any) -> float:
        return round(min(repeat(operation, number=_TIMED, repeat=_ROUNDS)) / _TIMED * 1e6, 2)

    times = CountTimes(workers, microseconds(take_and_give), microseconds(lambda: counter.count))
    counts.close()
    return times


def markdown(runs: Sequence[Run], counts: Sequence[CountTimes], command: str) -> str:
    """Return the report as text."""
    rows = []
    for one in runs:
        own, each = one.own_process, one.each_worker
        busiest = max(each, key=lambda worker: worker.resident_mb, default=None)
        rows.append(
            (
                one.workers,
                f"{own.resident_mb:g} ({own.own_mb:g})",
                f"{busiest.resident_mb:g} ({busiest.own_mb:g})" if busiest else None,
                f"{own.cpu_us:g}",
                f"{one.workers_cpu_us:.1f}" if each else None,
                f"{own.cpu_us / one.workers_cpu_us:.1%}" if each else None,
            )
        )
    titles = (
        "workers",
        "router's own process: MB",
        "largest worker: MB",
        "own process: µs a request",
        "all workers: µs a request",
        "own process ÷ workers",
    )
    count_rows = [(one.workers, one.take_and_give_us, one.read_us) for one in counts]
    bad = sum(one.bad for one in runs)
    return f"""# Workers

`{command}` on {description()}:
{runs[0].requests:,} small requests for each number of workers, {CONNECTIONS} at a time, **{bad} not answered
well**.

Memory: resident, and in brackets without what processes share. CPU time: user and system. With one worker
there is only the router's own process, which serves.

{table(titles, rows)}

## Shared in-flight counts

{table(("workers", "take and give (µs)", "read (µs)"), count_rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--requests", type=int, default=20_000, help="for each number of workers")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where workers.md and workers.json go")
    options = parser.parse_args()
    runs = []
    for workers in options.workers:
        runs.append(asyncio.run(run(workers, options.requests)))
        print(runs[-1], flush=True)
    counts = [time_counts(workers) for workers in (4, 64)]
    command = " ".join(["python -m benchmarks.workers", *sys.argv[1:]])
    document = {
        "command": command,
        "machine": description(),
        "runs": [asdict(one) for one in runs],
        "shared_counts": [asdict(one) for one in counts],
    }
    write(options.output, "workers", markdown(runs, counts, command), document)
    return 1 if any(one.bad for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
