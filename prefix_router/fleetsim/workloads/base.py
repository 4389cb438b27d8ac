"""What a workload is: parameters that make requests, the same on every machine for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.text import TextSource

MOST_SPREAD = 5.0
"""Beyond it, single values are larger than all others together."""


class Workload(Protocol):
    """A frozen dataclass whose fields are its parameters, all of them numbers."""

    name: ClassVar[str]
    """What it is called on the command line."""
    summary: ClassVar[str]
    """What it is, in half a sentence."""

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """`count` requests in order of arrival.

        They come at about one a second, or as fast as the people of the workload talk: whoever runs them
        stretches time to the load that is wanted. random, source: to be used by nobody else at the same time.
        """
        ...


def require_at_least(values: Mapping[str, float]) -> None:
    """Raise ValueError when one of the named values is below 1."""
    for name, value in values.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value:g}")


def require_spreads(values: Mapping[str, float]) -> None:
    """Raise ValueError unless each of the named spreads of a logarithm is from 0 to 5."""
    for name, value in values.items():
        if not 0 <= value <= MOST_SPREAD:
            raise ValueError(f"{name} must be from 0 to {MOST_SPREAD:g}, got {value:g}")


def require_share(name: str, value: float) -> None:
    """Raise ValueError unless `value` is from 0 to 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value:g}")
