"""What is compared: workloads with their numbers of requests, loads, strategies, numbers of routers.

The numbers of requests are a compromise: enough that each replica's cache is full and P99 is more than a few
requests, few enough that everything runs in half an hour on two cores. Prompts of agents are long, and each
of their blocks costs time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prefix_router.fleetsim.command.contender import parse_contender
from prefix_router.fleetsim.command.sources import GeneratedSource, TraceSource, collect
from prefix_router.fleetsim.plan import FleetPlan

if TYPE_CHECKING:
    from prefix_router.fleetsim.plan import FleetEvent
    from prefix_router.fleetsim.request import SimulatedRequest

SEED = 1
REPLICAS = 7

LOADS = (0.3, 0.6, 0.9)
OVERLOAD = 1.1

RING = "plain_ring"
AUTO = "prefix_aware:auto"
ADAPTIVE = "adaptive"
TREE = "radix_tree"
BY_LOAD = "least_outstanding_requests"

STRATEGIES = (
    "random",
    "round_robin",
    BY_LOAD,
    f"{RING}:auto",
    RING,
    "bounded_ring",
    "smg_prefix_hash",
    TREE,
    "prefix_aware",
    AUTO,
    ADAPTIVE,
)
OVERLOADED = (RING, "prefix_aware", AUTO, ADAPTIVE)
ROUTERS = 8
SEVERAL_ROUTERS = (TREE, AUTO, ADAPTIVE)

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
"""Hand-picked lengths of a prefix key, against which a depth that is found is compared."""
LENGTHS_LOAD = 0.6
PREFIX_TOKENS = 1024
"""Where keys end if the strategy says nothing."""

CHANGES_LOAD = 0.6
CHANGES_STRATEGIES = (f"{RING}:auto", AUTO, ADAPTIVE)

_CONVERSATION = "mooncake/conversation_trace.jsonl"
_SYNTHETIC = "mooncake/synthetic_trace.jsonl"
_CODING = "claude_code_weka/claude_code_traces.rle.jsonl.gz"
_AZURE = "azure/AzureLLMInferenceTrace_conv.csv"


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests from a generator (its text) or a file below the directory of traces.

    arrivals: an Azure trace whose arrivals replace its own. parts: which of `runs.PARTS` are run.
    """

    name: str
    requests: int
    text: str | None = None
    trace: str | None = None
    arrivals: str | None = None
    parts: tuple[str, ...] = ("rows", "lengths")

    def missing(self, traces: Path) -> str | None:
        """The first file that it needs and that is not there."""
        files = (file for file in (self.trace, self.arrivals) if file is not None)
        return next((file for file in files if not (traces / file).is_file()), None)

    def make(self, traces: Path) -> list[SimulatedRequest]:
        """The requests. Raises TraceError."""
        source = (
            GeneratedSource(self.text or self.name)
            if self.trace is None
            else TraceSource(str(traces / self.trace))
        )
        arrivals = None if self.arrivals is None else str(traces / self.arrivals)
        return collect(source, self.requests, SEED, arrivals, None)


WORKLOADS = (
    Workload("sagemaker", 4000),
    Workload("short_chats", 4000),
    Workload("documents", 4000),
    Workload("documents, Azure arrivals", 4000, text="documents", arrivals=_AZURE),
    Workload("hot_prefix", 4000),
    Workload("chat", 4000, parts=("rows", "lengths", "changes")),
    Workload("agents", 2500),
    Workload("unique", 4000),
    Workload("mix", 4000),
    Workload("Mooncake conversation", 3000, trace=_CONVERSATION),
    Workload("Mooncake synthetic", 3000, trace=_SYNTHETIC),
    Workload("coding agents", 500, trace=_CODING),
    Workload("sagemaker, 400 prefixes in use", 4000, text="sagemaker:active=400", parts=("changes",)),
)


def plan(
    written: str, routers: int = 1, replicas: int = REPLICAS, events: tuple[FleetEvent, ...] = ()
) -> FleetPlan:
    """The fleet under a strategy, written as on the command line."""
    contender = parse_contender(written)
    return FleetPlan(
        strategy=contender.strategy,
        replicas=replicas,
        routers=routers,
        events=events,
        prefix_tokens=contender.prefix_tokens or PREFIX_TOKENS,
        depth_auto=contender.depth_auto,
        seed=SEED,
    )
