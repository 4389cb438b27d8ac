"""The real side: a sequence, put to a replica or a router as token ids, one group after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from benchmarks.support.vllm.replica import MODEL_NAME
from benchmarks.support.vllm.router import BACKEND_HEADER
from benchmarks.validation.served import Served

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

    from benchmarks.validation.sequence import Ask, Group

_STEP_STARTS_SECONDS = 0.2
"""After this the first request of a group is being computed, which takes it several times as long."""
_APART_SECONDS = 0.015
"""Between the others, so that they come in order."""


class TooLateError(RuntimeError):
    """The others of a group came after its first request was answered: nothing is known of their order."""


async def put(session: aiohttp.ClientSession, url: str, groups: Sequence[Group]) -> list[list[Served]]:
    """Ask everything and return what was served, group by group.

    Raises TooLateError when the machine was too slow to ask a group together; try again on cold replicas.
    """
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    served = []
    for group in groups:
        answers = await _ask_together(session, url, group, asked)
        asked += [(answer.prompt, answer.answer) for answer in answers]
        served.append(answers)
    return served


async def _ask_together(
    session: aiohttp.ClientSession,
    url: str,
    group: Group,
    asked: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> list[Served]:
    async with asyncio.TaskGroup() as tasks:
        running = []
        for place, ask in enumerate(group):
            if place:
                await asyncio.sleep(_STEP_STARTS_SECONDS if place == 1 else _APART_SECONDS)
            running.append(tasks.create_task(_ask(session, url, len(asked) + place, ask, ask.prompt(asked))))
        await asyncio.sleep(_APART_SECONDS)
        if len(group) > 1 and running[0].done():
            raise TooLateError(f"the first of the group at request {len(asked)} was answered too early")
    return [task.result() for task in running]


async def _ask(
    session: aiohttp.ClientSession, url: str, number: int, ask: Ask, prompt: tuple[int, ...]
) -> Served:
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "prompt": list(prompt),
        "max_tokens": ask.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    async with session.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"request {number}: {response.status} {await response.text()}")
        answer = await response.json()
        backend = response.headers.get(BACKEND_HEADER)
    usage, (choice,) = answer["usage"], answer["choices"]
    if usage["prompt_tokens"] != len(prompt) or len(choice["token_ids"]) != ask.output_tokens:
        raise RuntimeError(f"request {number}: vLLM counted other tokens than were asked: {usage}")
    cached = usage["prompt_tokens_details"]["cached_tokens"] or 0
    return Served(number, ask.kind, prompt, tuple(choice["token_ids"]), cached, backend)
