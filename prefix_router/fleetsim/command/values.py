"""What the words behind the flags mean. Each function raises argparse.ArgumentTypeError for any others."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING

from prefix_router.fleetsim.command.contender import Contender, ContenderError, parse_contender
from prefix_router.fleetsim.command.sources import AZURE_PREFIX, GeneratedSource, TraceSource
from prefix_router.fleetsim.traces import TraceError, read_arrivals, read_trace
from prefix_router.fleetsim.workloads.catalogue import WorkloadError, parse_workload

if TYPE_CHECKING:
    from prefix_router.fleetsim.command.sources import Source


def workload(text: str) -> Source:
    """A workload, by its name and perhaps parameters."""
    try:
        parse_workload(text)
    except WorkloadError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return GeneratedSource(text)


def trace(text: str) -> Source:
    """A file that begins like a trace; the rest is read when it is its turn."""
    try:
        read_trace(text, 1)
    except TraceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return TraceSource(text)


def arrivals(text: str) -> str:
    """The file of an Azure trace."""
    if not text.startswith(AZURE_PREFIX):
        raise argparse.ArgumentTypeError(f"expected {AZURE_PREFIX}FILE, got {text!r}")
    file = text.removeprefix(AZURE_PREFIX)
    try:
        read_arrivals(file)
    except TraceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return file


def contenders(text: str) -> tuple[Contender, ...]:
    """Strategies, with or without a depth of their own, each once."""
    try:
        return tuple(dict.fromkeys(parse_contender(part) for part in text.split(",")))
    except ContenderError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def loads(text: str) -> tuple[float, ...]:
    """Shares of the capacity, each once."""
    try:
        loads = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers like 0.5,0.8, got {text!r}") from None
    if not all(0 < load < math.inf for load in loads):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return loads


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def new_file(text: str) -> str:
    """A file that can be written later: better to know before than after the work."""
    if os.path.isdir(text) or not os.path.isdir(os.path.dirname(text) or "."):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: there is no such directory")
    return text
