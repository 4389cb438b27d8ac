"""A client that goes away during prefill takes its work off the engine, through the router."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import aiohttp
import pytest

from benchmarks.support.vllm.replica import MODEL_NAME, Replica, fleet_counters, fleet_with
from benchmarks.support.vllm.router import Router
from benchmarks.support.vllm.workload import some_text

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

PROMPT_WORDS = 6_000
"""About 13,000 tokens: ten seconds of prefill and more, a hundred times what giving up takes."""


@pytest.mark.parametrize("stream", [False, True], ids=["not streaming", "streaming"])
async def test_a_disconnect_during_prefill_stops_the_engine(
    router: Router, replicas: tuple[Replica, ...], session: aiohttp.ClientSession, stream: bool
) -> None:
    body = {
        "model": MODEL_NAME,
        "messages": [
            {"role": "user", "content": some_text(random.Random(f"disconnect {stream}"), PROMPT_WORDS)}
        ],
        "max_tokens": 1000,
        "ignore_eos": True,
        "stream": stream,
    }
    before = await fleet_counters(session, replicas)
    assert before.requests_running == 0

    request = asyncio.create_task(read_answer(f"{router.url}/v1/chat/completions", body))
    await fleet_with(session, replicas, requests_running=1)
    assert not request.done()
    request.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await request

    after = await fleet_with(session, replicas, requests_running=0)
    assert after.generated_tokens == before.generated_tokens, "the prefill went on to its end"


async def read_answer(url: str, body: dict[str, Any]) -> None:
    """Send a request and read to its end on a connection of its own; being cancelled closes it."""
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        await response.read()
