"""Every API of vLLM that a client uses comes through the router as vLLM gives it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import openai
import pytest

from benchmarks.support.vllm.replica import MAX_MODEL_LENGTH_TOKENS, MODEL_NAME, Replica
from benchmarks.support.vllm.router import BACKEND_HEADER, REASON_HEADER, Router

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

TOKENS = 8
EXACTLY_TOKENS: dict[str, Any] = {"ignore_eos": True}
"""A random-weight model may end its answer at any token; this makes it go on to `max_tokens`."""


class TestChatCompletions:
    async def test_an_answer(self, router: Router) -> None:
        async with router.client() as client:
            answer = await client.chat.completions.create(
                model=MODEL_NAME,
                messages=[{"role": "user", "content": "Which way to the harbour?"}],
                max_tokens=TOKENS,
                extra_body=EXACTLY_TOKENS,
            )
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == TOKENS

    async def test_a_streamed_answer(self, router: Router) -> None:
        async with (
            router.client() as client,
            await client.chat.completions.create(
                model=MODEL_NAME,
                messages=[{"role": "user", "content": "Which way to the lighthouse?"}],
                max_tokens=TOKENS,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=EXACTLY_TOKENS,
            ) as stream,
        ):
            chunks = [chunk async for chunk in stream]
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
        assert choices[0].delta.role == "assistant"
        assert choices[-1].finish_reason == "length"
        assert any(choice.delta.content for choice in choices)
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == TOKENS


class TestCompletions:
    async def test_an_answer(self, router: Router) -> None:
        async with router.client() as client:
            answer = await client.completions.create(
                model=MODEL_NAME,
                prompt="The way to the harbour",
                max_tokens=TOKENS,
                extra_body=EXACTLY_TOKENS,
            )
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == TOKENS

    async def test_a_streamed_answer(self, router: Router) -> None:
        async with (
            router.client() as client,
            await client.completions.create(
                model=MODEL_NAME,
                prompt="The way to the lighthouse",
                max_tokens=TOKENS,
                stream=True,
                extra_body=EXACTLY_TOKENS,
            ) as stream,
        ):
            choices = [chunk.choices[0] async for chunk in stream if chunk.choices]
        assert choices[-1].finish_reason == "length"
        assert any(choice.text for choice in choices)

    async def test_a_prompt_of_token_ids(self, router: Router) -> None:
        async with router.client() as client:
            answer = await client.completions.create(
                model=MODEL_NAME, prompt=list(range(300, 340)), max_tokens=TOKENS
            )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 40


class TestResponses:
    async def test_an_answer(self, router: Router) -> None:
        async with router.client() as client:
            response = await client.responses.create(
                model=MODEL_NAME, input="Which way to the harbour?", max_output_tokens=TOKENS
            )
        assert response.object == "response"
        assert response.usage is not None
        assert 0 < response.usage.output_tokens <= TOKENS

    async def test_a_streamed_answer(self, router: Router) -> None:
        async with (
            router.client() as client,
            await client.responses.create(
                model=MODEL_NAME,
                input="Which way to the lighthouse?",
                max_output_tokens=TOKENS,
                stream=True,
            ) as stream,
        ):
            events = [event.type async for event in stream]
        assert events[0] == "response.created"
        assert "response.output_text.delta" in events
        assert events[-1] in {"response.completed", "response.incomplete"}

    async def test_a_conversation_goes_on_where_its_last_response_was_made(self, router: Router) -> None:
        """Only that replica knows the earlier response; six in a row are not right by chance."""
        async with router.client() as client:
            for number in range(6):
                first = await client.responses.with_raw_response.create(
                    model=MODEL_NAME, input=f"Remember the number {number}.", max_output_tokens=TOKENS
                )
                second = await client.responses.with_raw_response.create(
                    model=MODEL_NAME,
                    input="Which number was it?",
                    previous_response_id=first.parse().id,
                    max_output_tokens=TOKENS,
                )
                assert second.headers[REASON_HEADER] == "continuation"
                assert second.headers[BACKEND_HEADER] == first.headers[BACKEND_HEADER]


class TestAnthropicMessages:
    async def test_an_answer(self, router: Router, session: aiohttp.ClientSession) -> None:
        body = anthropic_body("Which way to the harbour?")
        async with session.post(f"{router.url}/v1/messages", json=body) as response:
            answer = await response.json()
        assert response.status == 200
        assert (answer["type"], answer["role"]) == ("message", "assistant")
        assert 0 < answer["usage"]["output_tokens"] <= TOKENS

    async def test_a_streamed_answer(self, router: Router, session: aiohttp.ClientSession) -> None:
        body = anthropic_body("Which way to the lighthouse?") | {"stream": True}
        async with session.post(f"{router.url}/v1/messages", json=body) as response:
            text = await response.text()
        events = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
        assert events[0] == "message_start"
        assert "content_block_delta" in events
        assert events[-1] == "message_stop"

    async def test_its_tokens_are_counted(self, router: Router, session: aiohttp.ClientSession) -> None:
        body = anthropic_body("Which way to the harbour?")
        async with session.post(f"{router.url}/v1/messages/count_tokens", json=body) as response:
            assert (await response.json())["input_tokens"] > 0


class TestModels:
    async def test_a_model_of_both_replicas_is_listed_once_with_its_metadata(self, router: Router) -> None:
        async with router.client() as client:
            models = (await client.models.list()).data
        assert [model.id for model in models] == [MODEL_NAME]
        assert models[0].model_extra is not None
        assert models[0].model_extra["max_model_len"] == MAX_MODEL_LENGTH_TOKENS

    async def test_a_model_that_nobody_serves_is_not_found(self, router: Router) -> None:
        async with router.client() as client:
            with pytest.raises(openai.NotFoundError) as caught:
                await client.chat.completions.create(
                    model="a-model-that-nobody-serves", messages=[{"role": "user", "content": "Hello"}]
                )
        assert caught.value.code == "model_not_found"


class TestPassingThrough:
    @pytest.mark.parametrize(
        "body",
        [
            pytest.param({"model": MODEL_NAME, "prompt": "Which way to the harbour?"}, id="text"),
            pytest.param(
                {"model": MODEL_NAME, "messages": [{"role": "user", "content": "Which way?"}]}, id="messages"
            ),
        ],
    )
    async def test_tokenize_answers_as_a_replica_does(
        self,
        router: Router,
        replicas: tuple[Replica, ...],
        session: aiohttp.ClientSession,
        body: dict[str, Any],
    ) -> None:
        data = json.dumps(body).encode()
        status, answer = await post(session, f"{router.url}/tokenize", data)
        assert status == 200
        assert json.loads(answer)["count"] > 3
        assert answer == (await post(session, f"{replicas[0].url}/tokenize", data))[1]

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b'{"model": "tiny", "messages": [], "max_tokens": -1}', id="a bad value"),
            pytest.param(b'{"model": "tiny", "messages": "not a list"}', id="a wrong type"),
            pytest.param(b'{"model": "tiny"}', id="a missing field"),
            pytest.param(b'{"model": "tiny", "messages": [', id="not JSON"),
            pytest.param(
                json.dumps(
                    {"model": MODEL_NAME, "messages": [{"role": "user", "content": "way " * 20_000}]}
                ).encode(),
                id="longer than the model's context",
            ),
        ],
    )
    async def test_the_error_of_a_bad_request_is_a_replicas_own_byte_for_byte(
        self, router: Router, replicas: tuple[Replica, ...], session: aiohttp.ClientSession, data: bytes
    ) -> None:
        through_router = await post(session, f"{router.url}/v1/chat/completions", data)
        assert through_router[0] == 400
        assert through_router == await post(session, f"{replicas[0].url}/v1/chat/completions", data)


def anthropic_body(text: str) -> dict[str, Any]:
    return {"model": MODEL_NAME, "max_tokens": TOKENS, "messages": [{"role": "user", "content": text}]}


async def post(session: aiohttp.ClientSession, url: str, data: bytes) -> tuple[int, bytes]:
    async with session.post(url, data=data, headers={"content-type": "application/json"}) as response:
        return response.status, await response.read()
