"""What one strategy does to a workload: asked through the router, counted by vLLM, timed by the client."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from benchmarks.support.vllm.replica import MODEL_NAME, Replica, fleet_counters
from benchmarks.support.vllm.router import BACKEND_HEADER, REASON_HEADER, Router
from benchmarks.support.vllm.workload import SharedPrefixWorkload, ideal_hit_tokens

CONCURRENCY = 2
ANSWER_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer as its client saw it."""

    backend: str
    reason: str
    first_token_seconds: float
    """From sending the request to the first event of the answer, which vLLM sends with the first token."""
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One strategy's run over one workload on an engine cache that knew none of its prefixes."""

    strategy: str
    answers: tuple[Answer, ...]
    queried_tokens: int
    hit_tokens: int
    """By vLLM's own counters, as is `queried_tokens`."""
    ideal_hit_tokens: int
    block_size_tokens: int
    router_token_counts: Mapping[str, tuple[int, int]]
    """Reason -> (prompt tokens, cached tokens), as the router exports them."""

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that vLLM found in its prefix cache."""
        return self.hit_tokens / self.queried_tokens

    @property
    def ideal_hit_rate(self) -> float:
        """What `hit_rate` would be if only the first request of each prefix were cold."""
        return self.ideal_hit_tokens / self.queried_tokens

    @property
    def share(self) -> dict[str, float]:
        """Backend -> fraction of the requests that it answered, largest first."""
        counts = Counter(answer.backend for answer in self.answers)
        return {backend: count / len(self.answers) for backend, count in counts.most_common()}


async def measure(
    strategy: str,
    router: Router,
    replicas: Sequence[Replica],
    workload: SharedPrefixWorkload,
    concurrency: int = CONCURRENCY,
) -> Measurement:
    """Ask the whole workload, `concurrency` requests at a time, round by round."""
    rounds = workload.conversations()
    async with aiohttp.ClientSession() as session, router.client() as client:
        cache = await replicas[0].cache_config(session)
        prompts = [
            await prompt_token_ids(session, replicas[0].url, conversation)
            for conversations in rounds
            for conversation in conversations
        ]
        before = await fleet_counters(session, replicas)
        answers: list[Answer] = []
        for conversations in rounds:
            answers += await _ask_all(client, conversations, concurrency)
        after = await fleet_counters(session, replicas)
        return Measurement(
            strategy=strategy,
            answers=tuple(answers),
            queried_tokens=after.queried_tokens - before.queried_tokens,
            hit_tokens=after.hit_tokens - before.hit_tokens,
            ideal_hit_tokens=ideal_hit_tokens(prompts, cache.block_size_tokens),
            block_size_tokens=cache.block_size_tokens,
            router_token_counts=await router.token_counts(session),
        )


async def prompt_token_ids(session: aiohttp.ClientSession, url: str, conversation: Any) -> list[int]:
    """Return the tokens that vLLM makes of a conversation, chat template included."""
    body = {"model": MODEL_NAME, "messages": conversation}
    async with session.post(f"{url}/tokenize", json=body) as response:
        response.raise_for_status()
        tokens: list[int] = (await response.json())["tokens"]
        return tokens


async def _ask_all(client: AsyncOpenAI, conversations: Sequence[Any], concurrency: int) -> list[Answer]:
    waiting = iter(conversations)

    async def ask_one_after_another() -> list[Answer]:
        return [await ask(client, conversation) for conversation in waiting]

    async with asyncio.TaskGroup() as group:
        users = [group.create_task(ask_one_after_another()) for _ in range(concurrency)]
    return [answer for user in users for answer in user.result()]


async def ask(client: AsyncOpenAI, conversation: Any, max_tokens: int = ANSWER_TOKENS) -> Answer:
    """Stream one answer to its end."""
    asked_at = time.perf_counter()
    response = await client.chat.completions.with_raw_response.create(
        model=MODEL_NAME,
        messages=conversation,
        max_tokens=max_tokens,
        stream=True,
        stream_options={"include_usage": True},
    )
    first_token_at: float | None = None
    usage = None
    async with response.parse() as stream:
        async for chunk in stream:
            if first_token_at is None:
                first_token_at = time.perf_counter()
            usage = chunk.usage or usage
    assert first_token_at is not None, "the stream was empty"
    assert usage is not None, "the stream ended without its usage"
    assert usage.prompt_tokens_details is not None
    return Answer(
        backend=response.headers[BACKEND_HEADER],
        reason=response.headers[REASON_HEADER],
        first_token_seconds=first_token_at - asked_at,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens or 0,
    )
