"""Reads a trace of any format."""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefix_router.fleetsim.traces.azure import HEADER, azure_requests, azure_rows
from prefix_router.fleetsim.traces.coding import coding_requests
from prefix_router.fleetsim.traces.errors import TraceError
from prefix_router.fleetsim.traces.lines import read_lines
from prefix_router.fleetsim.traces.mooncake import mooncake_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.traces.lines import Line


def read_trace(file: str, requests: int, seed: int = 0) -> list[SimulatedRequest]:
    """At most `requests` requests of a trace, in order of arrival. Raises TraceError.

    seed: of the order in which coding sessions begin; the other formats have an order.
    """
    first, lines = _open(file)
    if first.text == HEADER:
        next(lines)
        made = list(islice(azure_requests(lines), requests))
    else:
        try:
            row = json.loads(first.text)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise first.error(f"expected a JSON object or {HEADER}")
        if "hash_ids" in row:
            made = list(islice(mooncake_requests(lines), requests))
        elif "requests" in row:
            made = coding_requests(lines, requests, seed)
        else:
            raise first.error("expected hash_ids (Mooncake) or requests (coding agents)")
    if not made:
        raise TraceError(f"{file} has no requests")
    return sorted(made, key=lambda request: request.arrival_seconds)


def read_arrivals(file: str) -> list[float]:
    """The arrival times of an Azure trace, ascending, in seconds from its first. Raises TraceError."""
    first, lines = _open(file)
    if first.text != HEADER:
        raise first.error(f"expected {HEADER}")
    next(lines)
    seconds = sorted(row.seconds for row in azure_rows(lines))
    if len(seconds) < 2 or not seconds[-1] > seconds[0]:
        raise TraceError(f"{file} has no two arrivals")
    return [second - seconds[0] for second in seconds]


def _open(file: str) -> tuple[Line, Iterator[Line]]:
    """The first line, and all of them."""
    lines = read_lines(file)
    first = next(lines, None)
    if first is None:
        raise TraceError(f"{file} is empty")
    return first, chain([first], lines)
