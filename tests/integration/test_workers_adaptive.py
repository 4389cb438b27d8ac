"""Strategy `adaptive` in several workers: each knows what all of them have sent where."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings
from tests.support.waiting import eventually
from tests.support.workers import Workers, workers

FAST = StandInSettings(models=("m",), time_scale=100.0)
ADAPTIVE = {"strategy": "adaptive"}
DOCUMENTS = range(16)
QUESTIONS = range(6)


@asynccontextmanager
async def adaptive_workers(directory: Path, routing: dict[str, Any]) -> AsyncIterator[Workers]:
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(SimulatedVllm(FAST))).url for _ in range(3)]
        yield await stack.enter_async_context(workers(directory, *urls, routing=routing))


async def ask(router: Workers, document: int, question: int) -> tuple[str | None, int, int]:
    """Who answers, and of how many tokens of the prompt it had how many."""
    text = f"document {document} says: " * 1000 + f"question {question}?"
    answer = await router.ask(text, model="m", max_tokens=4)
    assert answer.status == 200, answer.body
    usage = answer.json()["usage"]
    return (
        answer.header("x-prefix-router-backend"),
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


async def homes_of(router: Workers, document: int) -> set[str | None]:
    return {(await ask(router, document, question))[0] for question in QUESTIONS}


async def test_every_question_about_a_document_reaches_the_backend_that_has_it_from_any_worker(
    tmp_path: Path,
) -> None:
    async with adaptive_workers(tmp_path, ADAPTIVE) as router:
        answers = [
            await asyncio.gather(*(ask(router, document, question) for document in DOCUMENTS))
            for question in QUESTIONS
        ]
    homes = [{answer[0] for answer in of_document} for of_document in zip(*answers, strict=True)]
    assert [len(home) for home in homes] == [1] * len(DOCUMENTS)
    assert set().union(*homes) == {"a", "b", "c"}
    asked_again = [answer for answers_of_round in answers[1:] for answer in answers_of_round]
    tokens, cached = sum(answer[1] for answer in asked_again), sum(answer[2] for answer in asked_again)
    assert cached > 0.98 * tokens


async def test_the_successor_of_a_worker_that_died_knows_what_was_sent_where(tmp_path: Path) -> None:
    async with adaptive_workers(tmp_path, ADAPTIVE) as router:
        before = [await ask(router, document, 0) for document in DOCUMENTS]
        for pid in await router.active():
            os.kill(pid, signal.SIGKILL)
        await eventually(router.status, lambda status: status["worker_restarts"] == 2)
        await eventually(router.active, lambda active: len(active) == 2)
        after = [await ask(router, document, 1) for document in DOCUMENTS]
        assert [answer[0] for answer in after] == [answer[0] for answer in before]


async def test_a_reload_that_brings_the_strategy_has_it_shared(tmp_path: Path) -> None:
    async with adaptive_workers(tmp_path, {"strategy": "round_robin"}) as router:
        assert len(await homes_of(router, 1)) > 1
        router.config.write_text(router.config.read_text().replace("round_robin", "adaptive"))
        assert (await router.admin("/reload", post=True))[0] == 200
        homes = [await homes_of(router, document) for document in DOCUMENTS[2:]]
        assert [len(home) for home in homes] == [1] * len(homes)
        # What is known outlasts a reload that keeps the strategy, and fleets of the same backends.
        assert (await router.admin("/reload", post=True))[0] == 200
        assert (await router.admin("/backends/a/drain", post=True))[0] == 200
        assert (await router.admin("/backends/a/undrain", post=True))[0] == 200
        again = [await homes_of(router, document) for document in DOCUMENTS[2:]]
        assert again == homes
