"""Where the requests of a comparison come from: a workload or a trace, and perhaps another one's arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prefix_router.fleetsim.traces import TraceError, read_arrivals, read_trace
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefix_router.fleetsim.request import SimulatedRequest

AZURE_PREFIX = "azure:"
"""What stands before the file whose arrivals replace a source's own."""


class Source(Protocol):
    """Makes requests."""

    @property
    def flag(self) -> str:
        """The flag of the command line that names sources of its kind."""
        ...

    @property
    def text(self) -> str:
        """What follows the flag."""
        ...

    @property
    def label(self) -> str:
        """What tables call it."""
        ...

    def requests(self, count: int, seed: int) -> list[SimulatedRequest]:
        """At most `count` requests in order of arrival. Raises TraceError."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedSource:
    """A workload, written as `NAME` or `NAME:parameter=value,...`."""

    text: str
    flag: str = "--workload"

    @property
    def label(self) -> str:
        """As it was written."""
        return self.text

    def requests(self, count: int, seed: int) -> list[SimulatedRequest]:
        """`count` requests. Raises WorkloadError."""
        return generate(parse_workload(self.text), count, seed)


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file with recorded traffic."""

    text: str
    flag: str = "--trace"

    @property
    def label(self) -> str:
        """The name of the file without its directory and endings."""
        return Path(self.text).name.split(".")[0]

    def requests(self, count: int, seed: int) -> list[SimulatedRequest]:
        """The first `count` requests of the file, or all. Raises TraceError."""
        return read_trace(self.text, count, seed)


def collect(
    source: Source, count: int, seed: int, arrivals: str | None, most_prompt_tokens: int | None
) -> list[SimulatedRequest]:
    """The requests of a source, in order of arrival. Raises TraceError.

    arrivals: an Azure trace whose arrivals replace those of the source. most_prompt_tokens: longer prompts
    are left out.
    """
    requests = source.requests(count, seed)
    if most_prompt_tokens is not None:
        requests = [request for request in requests if request.prompt_tokens <= most_prompt_tokens]
        if not requests:
            raise TraceError(f"{source.label} has no prompt of at most {most_prompt_tokens} tokens")
    return requests if arrivals is None else at_times(requests, read_arrivals(arrivals))


def at_times(requests: Sequence[SimulatedRequest], seconds: Sequence[float]) -> list[SimulatedRequest]:
    """The requests in their order at other times, ascending from 0, which are repeated as often as needed."""
    period = seconds[-1] * len(seconds) / (len(seconds) - 1)
    times = (
        seconds[number % len(seconds)] + number // len(seconds) * period for number in range(len(requests))
    )
    return [request._replace(arrival_seconds=time) for request, time in zip(requests, times, strict=True)]
