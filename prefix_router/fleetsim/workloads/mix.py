"""Several workloads at once, as on a fleet that serves more than one application."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.workloads.chat import ChatWorkload
from prefix_router.fleetsim.workloads.documents import DocumentsWorkload
from prefix_router.fleetsim.workloads.sagemaker import SagemakerWorkload
from prefix_router.fleetsim.workloads.unique import UniqueWorkload

if TYPE_CHECKING:
    from random import Random

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.base import Workload
    from prefix_router.fleetsim.workloads.text import TextSource


@dataclass(frozen=True, slots=True)
class MixWorkload:
    """Chats, documents, shared prefixes and unique prompts, each with its defaults and all at the same time.

    chat, documents, sagemaker, unique: parts of the requests, of any sum.
    """

    name: ClassVar[str] = "mix"
    summary: ClassVar[str] = "chat, documents, sagemaker and unique together (4 : 3 : 2 : 1)"

    chat: float = 4.0
    documents: float = 3.0
    sagemaker: float = 2.0
    unique: float = 1.0

    def __post_init__(self) -> None:
        parts = [part for _, part in self._parts()]
        if not (min(parts) >= 0 and 0 < sum(parts) < inf):
            raise ValueError("the parts of a mix cannot be negative, nor all of them 0")

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """Each part is stretched or squeezed to the time that one request a second takes."""
        total = sum(part for _, part in self._parts())
        made: list[SimulatedRequest] = []
        given = 0.0
        for workload, part in self._parts():
            first = round(given / total * count)
            given += part
            share = round(given / total * count) - first
            made += _within(workload.requests(share, random, source), count) if share else []
        return sorted(made, key=lambda request: request.arrival_seconds)

    def _parts(self) -> list[tuple[Workload, float]]:
        return [
            (ChatWorkload(), self.chat),
            (DocumentsWorkload(), self.documents),
            (SagemakerWorkload(), self.sagemaker),
            (UniqueWorkload(), self.unique),
        ]


def _within(requests: list[SimulatedRequest], seconds: float) -> list[SimulatedRequest]:
    factor = seconds / requests[-1].arrival_seconds
    return [request._replace(arrival_seconds=request.arrival_seconds * factor) for request in requests]
