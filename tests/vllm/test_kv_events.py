"""The exact view is exact: what the router takes a real vLLM to hold is what vLLM then finds in its cache."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.support.vllm.replica import MODEL_NAME, Replica
from benchmarks.support.vllm.workload import some_text
from prefix_router.kv_events import subscriber
from prefix_router.kv_events.chat_template import ChatTemplate
from prefix_router.kv_events.kv_events import KvEvents
from prefix_router.kv_events.prompt_tokens import PromptTokens
from prefix_router.kv_events.sockets import LiveSocket, Message
from prefix_router.kv_events.source import sources_of
from prefix_router.kv_events.status import EngineStatus
from prefix_router.kv_events.subscriber import Patience
from prefix_router.openai_api.request import Api, parse
from prefix_router.routing.fleet import BackendName
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

BLOCK_TOKENS = 128
"""As vLLM has it on a CPU."""

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Followed:
    """A replica whose KV events are followed."""

    def __init__(self, replica: Replica, events: KvEvents, session: aiohttp.ClientSession) -> None:
        self._replica = replica
        self._events = events
        self._session = session

    async def ask(self, path: str, body: dict[str, Any]) -> tuple[int, int]:
        """Return how many tokens the replica was taken to hold of a prompt, and how many it then found."""
        raw = json.dumps({"model": MODEL_NAME, "max_tokens": 1, **body}).encode()
        held = await self._held(path, raw)
        usage = (await post(self._session, self._replica.url + path, raw))["usage"]
        # Its events may come after its answer. Then every full block before the last token is there.
        all_of_it = (usage["prompt_tokens"] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        await eventually(lambda: self._held(path, raw), lambda now: now == all_of_it)
        return held, usage["prompt_tokens_details"]["cached_tokens"] or 0

    async def _held(self, path: str, raw: bytes) -> int:
        held = await self._events.holdings(parse(path, "application/json", raw, {}), raw)
        assert held is not None
        return held[BackendName(self._replica.name)]

    async def settled(self) -> None:
        """Wait until what the replica has sent so far has been followed."""
        await until(lambda: not self.status().out_of_sync)

    async def reset(self) -> None:
        """Have the replica drop its cache."""
        async with self._session.post(f"{self._replica.url}/reset_prefix_cache") as response:
            response.raise_for_status()

    def status(self) -> EngineStatus:
        return self._events.statuses()[0]


Follow = Callable[[Replica], AbstractAsyncContextManager[Followed]]


@pytest.fixture
def follow(tiny_model: Path, session: aiohttp.ClientSession) -> Follow:
    @asynccontextmanager
    async def following(replica: Replica) -> AsyncIterator[Followed]:
        host = "tcp://127.0.0.1"
        sources = sources_of(
            BackendName(replica.name), f"{host}:{replica.kv_events_port}", f"{host}:{replica.kv_replay_port}"
        )
        events = KvEvents(
            sources, PromptTokens(tiny_model / "tokenizer.json"), patience=Patience(idle_seconds=0.5)
        )
        events.start()
        try:
            followed = Followed(replica, events, session)
            await followed.settled()
            yield followed
        finally:
            await events.stop()

    return following


async def post(session: aiohttp.ClientSession, url: str, data: bytes) -> dict[str, Any]:
    async with session.post(url, data=data, headers={"content-type": "application/json"}) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


async def test_what_is_held_is_what_is_found(follow: Follow, replicas: tuple[Replica, ...]) -> None:
    draws = random.Random("kv events")
    beginnings = [some_text(draws, words) for words in (40, 150, 400)]
    found = 0
    async with follow(replicas[1]) as followed:
        for _ in range(2):
            for beginning in beginnings:
                ending = some_text(draws, 5)
                turns = [{"role": "system", "content": beginning}, {"role": "user", "content": ending}]
                for path, body in (
                    (COMPLETIONS, {"prompt": f"{beginning} {ending}"}),
                    (COMPLETIONS, {"prompt": f"{beginning} {ending}", "cache_salt": "pepper"}),
                    (CHAT, {"messages": turns}),
                ):
                    held, cached = await followed.ask(path, body)
                    assert held == cached
                    found += cached
    assert found > 3 * 256, "the second round finds what the first one computed"


async def test_a_cache_that_is_full_is_followed_block_by_block(
    follow: Follow, small_replica: Replica
) -> None:
    """Prompts that end with a block, copies of blocks, and more blocks than there is room for."""
    draws = random.Random("evictions")
    beginnings = [[draws.randrange(3, 4000) for _ in range(128 * draws.randrange(1, 12))] for _ in range(16)]
    found = 0
    async with follow(small_replica) as followed:
        for _ in range(50):
            ending = [draws.randrange(3, 4000) for _ in range(draws.choice((0, 0, 1, 60, 200)))]
            held, cached = await followed.ask(COMPLETIONS, {"prompt": draws.choice(beginnings) + ending})
            assert held == cached
            found += cached
        await followed.reset()
    assert found > 0


async def test_what_was_there_before_is_had_again_and_a_reset_empties_it(
    follow: Follow, replicas: tuple[Replica, ...]
) -> None:
    draws = random.Random("reset")
    prompt = {"prompt": some_text(draws, 300)}
    async with follow(replicas[1]) as followed:
        await followed.ask(COMPLETIONS, prompt)
    async with follow(replicas[1]) as followed:
        held, cached = await followed.ask(COMPLETIONS, prompt)
        assert held == cached > 0
        await followed.reset()
        # vLLM tells of a reset with the next step it takes, which is the next request.
        await followed.ask(COMPLETIONS, {"prompt": "a"})
        await until(lambda: followed.status().blocks == 0)
        assert await followed.ask(COMPLETIONS, prompt) == (0, 0)


async def test_a_message_that_was_lost_is_had_again(
    follow: Follow, replicas: tuple[Replica, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lossy(LiveSocket):
        """Loses every second message."""

        _turn = 0

        async def wait(self, seconds: float) -> tuple[Message | None, bool]:
            message, was_cut_off = await super().wait(seconds)
            self._turn += message is not None
            return (message if self._turn % 2 else None), was_cut_off

    monkeypatch.setattr(subscriber, "LiveSocket", Lossy)
    draws = random.Random("losses")
    prompts = [{"prompt": some_text(draws, 100)} for _ in range(4)]
    async with follow(replicas[1]) as followed:
        for prompt in prompts:
            await followed.ask(COMPLETIONS, prompt)
        await until(lambda: followed.status().blocks >= len(prompts))
        status = followed.status()
        assert status.counts["lost"] == 0
        for prompt in prompts:
            held, cached = await followed.ask(COMPLETIONS, prompt)
            assert held == cached > 0


USER = {"role": "user", "content": "hi <b>&'"}
CALL = {"type": "function", "id": "1", "function": {"arguments": '{"b": 1, "a": [2]}', "name": "f"}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "be nice"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "ünï"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {
        "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}],
        "tool_call_id": "1",
        "role": "tool",
    },
    {"role": "assistant", "content": "yo", "reasoning_content": "hmm"},
    {"role": "user", "content": "x", "name": "bob"},
]
TOOL = {
    "type": "function",
    "function": {
        "parameters": {"type": "object", "properties": {"q": {}}},
        "name": "f",
        "strict": True,
        "z": 1,
    },
}
EVERYTHING = (
    "{{ bos_token }}|{{ eos_token }}|{{ messages | tojson }}|{{ tools | tojson if tools }}|"
    "{{ documents | tojson if documents }}|{{ reasoning_effort }}|{{ enable_thinking }}|{{ x }}|"
    "{{ add_generation_prompt }}|{{ strftime_now('%d %b %Y') }}"
)
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p | tojson }}{% endfor %}\n   "
    "{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}{% generation %}hey{% endgeneration %}"
)
MACRO = (
    "{% macro show(it) %}{% for part in it %}[{{ part }}]{% endfor %}{% endmacro %}"
    "{% set rest = messages[0:] %}{% for m in rest %}{{ show(m['content']) }}{% endfor %}"
)


class TestPromptTokens:
    @pytest.mark.parametrize(
        "template", [None, EVERYTHING, PARTS, MACRO], ids=["own", "all", "parts", "macro"]
    )
    @pytest.mark.parametrize(
        "body",
        [
            {"messages": TALK},
            {"messages": TALK, "tools": [TOOL]},
            {"messages": [USER], "documents": [{"title": "t", "text": "x"}], "reasoning_effort": "low"},
            {"messages": [USER], "chat_template_kwargs": {"x": "y", "enable_thinking": False}},
            {"messages": [USER], "add_generation_prompt": False, "chat_template_kwargs": {"x": None}},
            {"messages": [{"role": "user", "content": "<|turn|>user\n<|end|>"}], "add_special_tokens": True},
        ],
    )
    async def test_a_chat_is_rendered_as_by_vllm(
        self,
        replicas: tuple[Replica, ...],
        session: aiohttp.ClientSession,
        tiny_model: Path,
        template: str | None,
        body: dict[str, Any],
    ) -> None:
        prompts = PromptTokens(tiny_model / "tokenizer.json")
        asked: dict[str, Any] = {"model": MODEL_NAME, "max_tokens": 1, "return_token_ids": True, **body}
        if "tools" in body:
            asked["tool_choice"] = (
                "none"  # vLLM was started without a tool parser; the prompt has them anyway
            )
        if template is not None:
            asked["chat_template"] = template
            prompts._template = ChatTemplate(
                {"default": template}, {"eos_token": "<|end|>", "pad_token": ""}, datetime.now
            )
        answer = await post(session, replicas[1].url + CHAT, json.dumps(asked).encode())
        assert ids(prompts.tokens(Api.CHAT, json.dumps(body).encode())) == answer["prompt_token_ids"]
        prompts.close()

    @pytest.mark.parametrize("prompt", ["Hello <|end|> wörld \n\n x", [5, 6, 7]])
    async def test_a_completion_is_tokenized_as_by_vllm(
        self, replicas: tuple[Replica, ...], session: aiohttp.ClientSession, tiny_model: Path, prompt: Any
    ) -> None:
        prompts = PromptTokens(tiny_model / "tokenizer.json")
        body = {"model": MODEL_NAME, "max_tokens": 1, "return_token_ids": True, "prompt": prompt}
        answer = await post(session, replicas[1].url + COMPLETIONS, json.dumps(body).encode())
        tokens = ids(prompts.tokens(Api.COMPLETIONS, json.dumps(body).encode()))
        assert tokens == answer["choices"][0]["prompt_token_ids"]
        prompts.close()


def ids(packed: bytes | None) -> list[int] | None:
    return None if packed is None else array("I", packed).tolist()
