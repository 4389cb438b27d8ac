"""The workloads by name, and what `NAME:parameter=value,...` on a command line stands for."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from prefix_router.fleetsim.workloads.agents import AgentsWorkload
from prefix_router.fleetsim.workloads.chat import ChatWorkload
from prefix_router.fleetsim.workloads.documents import DocumentsWorkload
from prefix_router.fleetsim.workloads.hot_prefix import HotPrefixWorkload
from prefix_router.fleetsim.workloads.mix import MixWorkload
from prefix_router.fleetsim.workloads.sagemaker import SagemakerWorkload
from prefix_router.fleetsim.workloads.short_chats import ShortChatsWorkload
from prefix_router.fleetsim.workloads.text import TextSource
from prefix_router.fleetsim.workloads.unique import UniqueWorkload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefix_router.fleetsim.request import SimulatedRequest
    from prefix_router.fleetsim.workloads.base import Workload

_ALL = (
    SagemakerWorkload,
    ShortChatsWorkload,
    DocumentsWorkload,
    HotPrefixWorkload,
    ChatWorkload,
    AgentsWorkload,
    UniqueWorkload,
    MixWorkload,
)

WORKLOADS: Mapping[str, type[Workload]] = MappingProxyType({kind.name: kind for kind in _ALL})
"""The workloads by name."""


class WorkloadError(Exception):
    """There is no such workload, or not with these parameters."""


def parse_workload(text: str) -> Workload:
    """The workload that `NAME` or `NAME:parameter=value,...` means. Raises WorkloadError."""
    name, _, settings = text.partition(":")
    kind = WORKLOADS.get(name)
    if kind is None:
        raise WorkloadError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    defaults = parameters(kind)
    values: dict[str, float] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in defaults:
            raise WorkloadError(f"{name} has no parameter {key!r}; it has {', '.join(defaults)}")
        try:
            values[key] = type(defaults[key])(value)
        except ValueError:
            number = "a whole number" if isinstance(defaults[key], int) else "a number"
            raise WorkloadError(f"{key} of {name} must be {number}, got {value!r}") from None
    try:
        return kind(**values)
    except ValueError as error:
        raise WorkloadError(f"{name}: {error}") from None


def parameters(kind: type[Workload]) -> dict[str, float]:
    """The parameters of a workload and their defaults."""
    return {field.name: cast("float", field.default) for field in fields(cast("Any", kind))}


def generate(workload: Workload, count: int, seed: int) -> list[SimulatedRequest]:
    """`count` requests, in order of arrival, always the same for one seed."""
    return workload.requests(count, Random(f"{workload.name} {seed}"), TextSource())
