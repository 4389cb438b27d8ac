"""A replica dies without a word, and no client notices more than a cold prefix."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import aiohttp
import pytest

from benchmarks.support.vllm.measurement import Answer, ask
from benchmarks.support.vllm.replica import MODEL_NAME, Replica, fleet_with
from benchmarks.support.vllm.router import BACKEND_HEADER, Router
from benchmarks.support.vllm.workload import Message, some_text

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

PROMPTS_PER_HOME = 4
PROMPTS_BOUND = 100
HEAD_WORDS = 700
"""About 5,500 bytes: more than the 1,024 tokens that the router hashes by default."""
TAIL_WORDS = 3_500
"""About 7,500 tokens: seconds of prefill."""


async def test_killing_a_replica_loses_no_request(
    router: Router,
    replicas: tuple[Replica, ...],
    doomed_replica: Replica,
    session: aiohttp.ClientSession,
) -> None:
    (survivor,) = (replica.name for replica in replicas if replica is not doomed_replica)
    draws = random.Random("replica loss")
    async with router.client() as client:
        first_answers: list[tuple[list[Message], Answer]] = []
        homes: Counter[str] = Counter()
        while min(homes[replica.name] for replica in replicas) < PROMPTS_PER_HOME:
            assert len(first_answers) < PROMPTS_BOUND, f"the homes are {homes}"
            conversation = one_turn(some_text(draws, HEAD_WORDS))
            answer = await ask(client, conversation, max_tokens=1)
            first_answers.append((conversation, answer))
            homes[answer.backend] += 1

        # This one is being computed where the lightning strikes. Its client has not seen a byte of an answer,
        # so the router can still ask the other replica.
        head = next(turns for turns, answer in first_answers if answer.backend == doomed_replica.name)
        long_conversation = one_turn(f"{head[0]['content']} {some_text(draws, TAIL_WORDS)}")
        struck = asyncio.create_task(backend_that_answers(router, long_conversation))
        await fleet_with(session, [doomed_replica], requests_running=1)
        doomed_replica.process.kill()

        second_answers = [await ask(client, conversation, max_tokens=1) for conversation, _ in first_answers]
        assert await struck == survivor

    assert {answer.backend for answer in second_answers} == {survivor}
    assert [answer.reason for answer in second_answers] == [
        "affinity" if answer.backend == survivor else "failover" for _, answer in first_answers
    ]


def one_turn(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


async def backend_that_answers(router: Router, conversation: list[Message]) -> str:
    """Ask for an answer that is not streamed; return which backend gave it."""
    body = {"model": MODEL_NAME, "max_tokens": 1, "messages": conversation}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{router.url}/v1/chat/completions", json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return response.headers[BACKEND_HEADER]
