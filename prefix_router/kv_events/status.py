"""What can be told of the events of one engine: a status for people, and counts for metrics."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import msgspec

from prefix_router.routing.fleet import BackendName


class Count(Enum):
    """What is counted. The values are fit for metric labels."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    EVENTS = "events"
    """Events followed."""
    GAPS = "gaps"
    """Times that messages were missing."""
    REPLAYS = "replays"
    """Requests to the engine to send old messages again."""
    LOST = "lost"
    """Times that the view was given up: what was missing could not be had again."""
    RESTARTS = "restarts"
    """Times that the engine turned out to be another one than before."""
    UNKNOWN = "unknown"
    """Events of types that this version does not know; they are passed over."""
    MALFORMED = "malformed"
    """Messages and events that are not shaped as they should be."""


class Counters(Protocol):
    """Where counts go."""

    def counted(self, backend: BackendName, count: Count, amount: int) -> None:
        """Add to a counter. Must not raise or block."""


class NoCounters:
    """Counts for nobody."""

    def counted(self, backend: BackendName, count: Count, amount: int) -> None:
        """Do nothing."""


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one engine, as of now.

    connected: whether the socket for live events is. out_of_sync: whether its blocks are not known, so that
    nobody is told about them. last_sequence: of the last message followed; None before the first. blocks:
    how many it holds. offloaded, skipped: stored blocks that do not count, see `engine.EngineBlocks`.
    counts: by the values of `Count`.
    """

    backend: BackendName
    rank: int
    endpoint: str
    connected: bool
    out_of_sync: bool
    last_sequence: int | None
    blocks: int
    offloaded: int
    skipped: int
    counts: dict[str, int]
