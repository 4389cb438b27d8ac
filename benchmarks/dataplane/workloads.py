"""The loads that every router gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.dataplane.wire import bodies, request, write_requests

SMALL_BYTES, LARGE_BYTES, HUGE_BYTES = 260, 39_000, 400_000


@dataclass(frozen=True, slots=True)
class Workload:
    """One load.

    requests: which file of requests. streams: read by our own client instead of wrk. every: ticks of 5 ms
    between two events of a stream. paced: at half of the rate that `small`, which
    comes first, has reached.
    """

    name: str
    title: str
    requests: str
    connections: int
    streams: bool = False
    every: int = 1
    paced: bool = False


WORKLOADS = (
    Workload("small", "260 B JSON, 64 connections", "small", 64),
    Workload("paced", "260 B JSON at half of the router's own limit", "small", 64, paced=True),
    Workload("one", "260 B JSON, one connection", "small", 1),
    Workload("large", "39 KB prompts, 64 connections", "large", 64),
    Workload("huge", "400 KB prompts, 16 connections", "huge", 16),
    Workload("streams", "streams of 64 events at 5 ms, 200 connections", "stream", 200, streams=True),
    Workload("mixed", "70% 260 B, 20% 39 KB, 10% streams, 128 connections", "mixed", 128, streams=True),
    Workload(
        "thousand", "1,000 streams at once of 64 events at 50 ms", "stream", 1000, streams=True, every=10
    ),
)
QUICK = ("small", "large", "streams", "one")


def write_files(folder: Path) -> dict[str, Path]:
    """Write the files of requests, and return them by name."""
    small = [request(body) for body in bodies(SMALL_BYTES, 512)]
    large = [request(body) for body in bodies(LARGE_BYTES, 512)]
    stream = [request(body) for body in bodies(SMALL_BYTES, 512, stream=True)]
    huge = [request(body) for body in bodies(HUGE_BYTES, 64)]
    mixed = []
    for at in range(0, 500, 10):
        mixed += [*small[at : at + 3], large[at], *small[at + 3 : at + 5], stream[at]]
        mixed += [*small[at + 5 : at + 7], large[at + 1]]
    files = {"small": small, "large": large, "huge": huge, "stream": stream, "mixed": mixed}
    for name, wires in files.items():
        write_requests(folder / name, wires)
    return {name: folder / name for name in files}
