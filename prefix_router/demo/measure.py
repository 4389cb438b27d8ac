"""Drives a workload through a router and measures what its clients see.

Open loop: requests are sent when the workload says so, whether or not earlier ones are answered, because
that is what makes a queue grow where a real one would. Times are taken by the client, from sending to the
first event of the stream, and given in simulated milliseconds: wall clock times the time scale. What the
caches did is read from the replicas' own counters.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from prefix_router.demo.processes import DemoError
from prefix_router.openai_api.engine_metrics import parse_engine_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefix_router.simulate.workloads import Arrival

CHAT_PATH = "/v1/chat/completions"

_JSON = {"Content-Type": "application/json"}
_FIRST_EVENT = b"data:"
_LAST_EVENT = b"data: [DONE]"
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class EncodedArrival:
    """A request as it is sent, `seconds` of wall clock after the start."""

    seconds: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one strategy did with the workload.

    ttft_ms: simulated milliseconds to the first token, sorted. share: part of the requests by backend.
    reasons: requests by why their backend was chosen. hit_rate: cached prompt tokens of all prompt tokens.
    """

    hit_rate: float
    ttft_ms: list[float]
    share: dict[str, float]
    reasons: dict[str, int]

    def percentile(self, percent: float) -> float:
        """The time to first token that `percent` of the requests did not exceed (nearest rank)."""
        return self.ttft_ms[max(math.ceil(len(self.ttft_ms) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class _Answer:
    ttft_seconds: float
    backend: str
    reason: str


def encode(arrivals: Iterable[Arrival], time_scale: float) -> list[EncodedArrival]:
    """Make requests ready to be sent, so that sending them costs no time when it matters."""
    return [
        EncodedArrival(arrival.seconds / time_scale, msgspec.json.encode(arrival.body))
        for arrival in arrivals
    ]


async def measure(
    session: aiohttp.ClientSession,
    url: str,
    replicas: Sequence[str],
    arrivals: Sequence[EncodedArrival],
    time_scale: float,
) -> Measurement:
    """Reset the replicas' caches, send the workload to `url` and measure. Raises DemoError on any failure."""
    await _make_cold(session, replicas)
    before = await _cache_counters(session, replicas)
    answers = await _drive(session, url, arrivals)
    after = await _cache_counters(session, replicas)
    queried, hit = (now - then for now, then in zip(after, before, strict=True))
    backends = Counter(answer.backend for answer in answers)
    return Measurement(
        hit_rate=hit / queried if queried else 0.0,
        ttft_ms=sorted(answer.ttft_seconds * time_scale * 1e3 for answer in answers),
        share={backend: count / len(answers) for backend, count in sorted(backends.items())},
        reasons=dict(Counter(answer.reason for answer in answers)),
    )


async def _drive(
    session: aiohttp.ClientSession, url: str, arrivals: Sequence[EncodedArrival]
) -> list[_Answer]:
    """Send every request at its time and wait for all answers; the first failure ends it."""
    clock = asyncio.get_running_loop().time
    start = clock()
    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            for arrival in arrivals:
                await asyncio.sleep(start + arrival.seconds - clock())
                tasks.append(group.create_task(ask(session, url, arrival.body)))
    except* DemoError as failures:
        # Where many requests fail they mostly fail for one reason: name one of them.
        raise DemoError(str(failures.exceptions[0])) from failures
    return [task.result() for task in tasks]


async def ask(session: aiohttp.ClientSession, url: str, body: bytes) -> _Answer:
    """Send one streaming request and read all of it. Raises DemoError when it is not answered in full."""
    clock = asyncio.get_running_loop().time
    sent = clock()
    first_event_at = 0.0
    tail = b""
    try:
        async with session.post(url + CHAT_PATH, data=body, headers=_JSON) as response:
            async for piece in response.content.iter_any():
                if not first_event_at and _FIRST_EVENT in piece:
                    first_event_at = clock()
                tail = tail[-64:] + piece
    except aiohttp.ClientError as error:
        raise DemoError(f"a request failed: {error!r}") from error
    if response.status != 200 or _LAST_EVENT not in tail:
        raise DemoError(f"a request failed with status {response.status}: {tail[:200]!r}")
    return _Answer(
        first_event_at - sent,
        response.headers.get("x-prefix-router-backend", "unknown"),
        response.headers.get("x-prefix-router-reason", "unknown"),
    )


async def _make_cold(session: aiohttp.ClientSession, replicas: Sequence[str]) -> None:
    """Reset every cache, once nothing runs any more: a replica that is busy keeps its cache."""
    for replica in replicas:
        load = await _load(session, replica)
        while load:
            await asyncio.sleep(_PAUSE_SECONDS)
            load = await _load(session, replica)
        async with session.post(f"{replica}/reset_prefix_cache") as response:
            response.raise_for_status()


async def _load(session: aiohttp.ClientSession, replica: str) -> int:
    async with session.get(f"{replica}/load") as response:
        load: int = (await response.json())["server_load"]
        return load


async def _cache_counters(session: aiohttp.ClientSession, replicas: Sequence[str]) -> tuple[float, float]:
    """Prompt tokens looked up and found, over all replicas since they started."""
    queried = hit = 0.0
    for replica in replicas:
        async with session.get(f"{replica}/metrics") as response:
            metrics = parse_engine_metrics(await response.read())
        queried += metrics.prefix_cache_queried_tokens or 0.0
        hit += metrics.prefix_cache_hit_tokens or 0.0
    return queried, hit
