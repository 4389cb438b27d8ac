"""Read the handful of figures that matter from the text of a vLLM `/metrics`.

The text has up to 200 KB of histograms for every value of interest, so nothing is parsed in general: each
wanted name is found by a substring search and only its own lines are read. O(names × bytes), at C speed.

One backend may be several engines (data-parallel ranks), with one series each under the label `engine`.
Requests and token counters are summed. KV-cache use is the *mean*: the engines of one backend are equally
large, so the mean is how full the backend is; the fullest engine alone would make a backend look full
that has room.

Names changed over vLLM's versions, some of which export old and new together: the first name that has a
sample is taken, the others are ignored. Never raises: garbage gives None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

_RUNNING = (b"vllm:num_requests_running",)
_WAITING = (b"vllm:num_requests_waiting",)
_KV_USAGE = (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc")
_QUERIED = (
    b"vllm:prefix_cache_queries_total",
    b"vllm:prefix_cache_queries",
    b"vllm:gpu_prefix_cache_queries_total",
    b"vllm:gpu_prefix_cache_queries",
)
_HIT = (
    b"vllm:prefix_cache_hits_total",
    b"vllm:prefix_cache_hits",
    b"vllm:gpu_prefix_cache_hits_total",
    b"vllm:gpu_prefix_cache_hits",
)
_CACHE_CONFIG = b"vllm:cache_config_info"

_LABELS_AND_VALUE = re.compile(rb'(\{(?:[^"}\n]|"(?:[^"\\\n]|\\[^\n])*")*\})?[ \t]+(\S+)')
_BLOCK_SIZE = re.compile(rb'[{,][ \t]*block_size="(\d{1,9})"')


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One backend's own figures; None for what it does not export.

    Both prefix-cache counters count tokens and restart from 0 with the engine. `kv_cache_usage_ratio` is
    0 to 1. `block_size_tokens` is how many tokens a block of the prefix cache holds: only whole blocks hit.
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    prefix_cache_queried_tokens: float | None = None
    prefix_cache_hit_tokens: float | None = None
    block_size_tokens: int | None = None


def parse_engine_metrics(text: bytes) -> EngineMetrics:
    """Return the figures in a Prometheus text. Never raises."""
    usage = _values(text, _KV_USAGE)
    return EngineMetrics(
        requests_running=_sum(_values(text, _RUNNING)),
        requests_waiting=_sum(_values(text, _WAITING)),
        kv_cache_usage_ratio=sum(usage) / len(usage) if usage else None,
        prefix_cache_queried_tokens=_sum(_values(text, _QUERIED)),
        prefix_cache_hit_tokens=_sum(_values(text, _HIT)),
        block_size_tokens=_block_size(text),
    )


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None


def _values(text: bytes, names: tuple[bytes, ...]) -> list[float]:
    for name in names:
        values = []
        for sample in _samples(text, name):
            try:
                value = float(sample[2])
            except ValueError:
                continue
            if isfinite(value) and value >= 0:
                values.append(value)
        if values:
            return values
    return []


def _block_size(text: bytes) -> int | None:
    for sample in _samples(text, _CACHE_CONFIG):
        found = _BLOCK_SIZE.search(sample[1] or b"")
        if found is not None:
            return int(found[1]) or None
    return None


def _samples(text: bytes, name: bytes) -> list[re.Match[bytes]]:
    """All sample lines of exactly this name; a longer name that only begins with it is not one."""
    found = []
    start = text.find(name)
    while start != -1:
        after = start + len(name)
        if start == 0 or text[start - 1 : start] == b"\n":
            match = _LABELS_AND_VALUE.match(text, after)
            if match is not None:
                found.append(match)
        start = text.find(name, after)
    return found
