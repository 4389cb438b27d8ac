"""The stand-in vLLM over real sockets: what a client, a router and a scraper see of it."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import openai
import pytest

from prefix_router.openai_api.engine_metrics import EngineMetrics, parse_engine_metrics
from prefix_router.simulate.api import STORED_RESPONSES
from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings
from tests.support.sse import read_events
from tests.support.waiting import eventually, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FAST = StandInSettings(time_scale=1000.0)
HOURS = 100_000
"""More tokens than any test waits for: at full speed they take over a quarter of an hour."""

DOCUMENT = "A shared beginning of exactly sixty-four bytes, 16 pseudo-tokens. " * 20


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 5, **fields}


@asynccontextmanager
async def stand_in(settings: StandInSettings = FAST) -> AsyncIterator[Client]:
    async with SimulatedVllm(settings) as server, aiohttp.ClientSession(server.url) as session:
        yield Client(server, session)


class Client:
    """Asks one stand-in, and looks into it."""

    def __init__(self, server: SimulatedVllm, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.engine = server.engine
        self.session = session

    async def post(self, path: str, body: Any) -> Any:
        """The JSON of a good answer."""
        async with self.session.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def refused(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """The status and the error of a bad one."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(path, data=data) as response:
            assert response.content_type == "application/json"
            return response.status, (await response.json())["error"]

    async def stream(self, path: str, body: Any) -> list[Any]:
        """All events of a stream."""
        async with self.session.post(path, json={**body, "stream": True}) as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            return read_events(await response.read())

    async def get(self, path: str) -> tuple[int, bytes]:
        async with self.session.get(path) as response:
            return response.status, await response.read()

    async def metrics(self) -> EngineMetrics:
        return parse_engine_metrics((await self.get("/metrics"))[1])


# Prefix reuse.


async def test_the_second_question_about_a_document_hits_its_full_blocks() -> None:
    async with stand_in() as client:
        first = await client.post("/v1/chat/completions", chat(DOCUMENT + "one?"))
        second = await client.post("/v1/chat/completions", chat(DOCUMENT + "two?"))
        metrics = await client.metrics()
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    shared_tokens = len("<|user|>\n...") // 4 + len(DOCUMENT) // 4
    assert cached == shared_tokens // 16 * 16
    assert metrics.prefix_cache_hit_tokens == cached
    assert metrics.prefix_cache_queried_tokens == sum(
        answer["usage"]["prompt_tokens"] for answer in (first, second)
    )


async def test_the_next_turn_of_a_chat_hits_the_answer_too() -> None:
    async with stand_in() as client:
        question = {"role": "user", "content": DOCUMENT}
        first = await client.post(
            "/v1/chat/completions", {"messages": [question], "max_completion_tokens": 160}
        )
        answer = first["choices"][0]["message"]
        turns = [question, {"role": "assistant", "content": answer["content"]}, question]
        second = await client.post("/v1/chat/completions", {"messages": turns, "max_tokens": 1})
    # All but the last generated token have been computed.
    seen = first["usage"]["total_tokens"] - 1
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == seen // 16 * 16


@pytest.mark.parametrize("different", [{"cache_salt": "mine"}, {"model": "adapter"}])
async def test_nothing_is_shared_across_salts_or_adapters(different: dict[str, str]) -> None:
    async with stand_in(StandInSettings(models=("base", "adapter"), time_scale=1000.0)) as client:
        await client.post("/v1/chat/completions", chat(DOCUMENT))
        other = await client.post("/v1/chat/completions", chat(DOCUMENT, **different))
        again = await client.post("/v1/chat/completions", chat(DOCUMENT, **different))
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_token_ids_and_their_text_are_the_same_prompt() -> None:
    async with stand_in() as client:
        ids = (await client.post("/tokenize", {"prompt": DOCUMENT}))["tokens"]
        await client.post("/v1/completions", {"prompt": DOCUMENT, "max_tokens": 1})
        again = await client.post("/v1/completions", {"prompt": ids, "max_tokens": 1})
    assert again["usage"]["prompt_tokens"] == len(ids)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (len(ids) - 1) // 16 * 16


async def test_a_reset_makes_the_replica_cold() -> None:
    async with stand_in() as client:
        await client.post("/v1/chat/completions", chat(DOCUMENT))
        async with client.session.post("/reset_prefix_cache") as response:
            assert response.status == 200
        again = await client.post("/v1/chat/completions", chat(DOCUMENT))
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_replica_with_large_blocks_says_so_and_hits_in_large_blocks() -> None:
    async with stand_in(StandInSettings(block_size=128, time_scale=1000.0)) as client:
        for _ in range(2):
            answer = await client.post("/v1/chat/completions", chat(DOCUMENT))
        metrics = await client.metrics()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 256
    assert metrics.block_size_tokens == 128


# What each API says.


async def test_a_chat_answers_with_as_many_tokens_as_allowed() -> None:
    async with stand_in() as client:
        body = await client.post("/v1/chat/completions", chat("what did I say?", max_tokens=12))
    assert body["usage"]["completion_tokens"] == 12
    assert len(body["choices"][0]["message"]["content"]) == 48
    assert body["choices"][0]["finish_reason"] == "length"
    assert "what did I say?" not in json.dumps(body)


async def test_a_chat_without_a_limit_stops_by_itself() -> None:
    async with stand_in(StandInSettings(output_tokens=9, time_scale=1000.0)) as client:
        body = await client.post("/v1/chat/completions", chat(max_tokens=None))
    assert body["usage"]["completion_tokens"] == 9
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_a_chat_stream_is_the_same_text_in_pieces_with_usage_when_asked() -> None:
    async with stand_in() as client:
        whole = await client.post("/v1/chat/completions", chat(max_tokens=20))
        *chunks, usage, end = await client.stream(
            "/v1/chat/completions", chat(max_tokens=20, stream_options={"include_usage": True})
        )
        without_usage = await client.stream("/v1/chat/completions", chat(max_tokens=20))
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"
    assert usage["usage"]["completion_tokens"] == 20
    assert end == "[DONE]"
    assert not any("usage" in chunk for chunk in without_usage[:-1])


async def test_several_answers_to_several_prompts_are_one_response() -> None:
    async with stand_in() as client:
        body = await client.post("/v1/completions", {"prompt": ["aaaa", "bbbb"], "n": 2, "max_tokens": 3})
        *chunks, _end = await client.stream("/v1/completions", {"prompt": "aaaa", "n": 2, "max_tokens": 3})
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == 2
    assert body["usage"]["completion_tokens"] == 12
    for index in (0, 1):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == body["choices"][index]["text"]


async def test_messages_answer_in_the_shape_of_anthropic() -> None:
    request = {"system": "Be dull.", **chat(max_tokens=4)}
    async with stand_in() as client:
        body = await client.post("/v1/messages", request)
        events = await client.stream("/v1/messages", request)
        count = await client.post("/v1/messages/count_tokens", request)
    assert body["type"] == "message"
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == body["content"][0]["text"]
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert count == {"input_tokens": body["usage"]["input_tokens"]}


async def test_a_response_can_be_continued_and_fetched() -> None:
    async with stand_in() as client:
        first = await client.post("/v1/responses", {"input": DOCUMENT, "max_output_tokens": 32})
        second = await client.post(
            "/v1/responses",
            {"input": "And?", "previous_response_id": first["id"], "max_output_tokens": 1},
        )
        status, fetched = await client.get(f"/v1/responses/{first['id']}")
    seen = first["usage"]["total_tokens"] - 1
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == seen // 16 * 16
    assert (status, json.loads(fetched)) == (200, first)


async def test_a_response_that_is_not_stored_cannot_be_continued() -> None:
    async with stand_in() as client:
        first = await client.post("/v1/responses", {"input": "Hi", "store": False})
        status, error = await client.refused(
            "/v1/responses", {"input": "And?", "previous_response_id": first["id"]}
        )
        assert (await client.get("/v1/responses/resp_unknown"))[0] == 404
    assert (status, error["code"]) == (404, 404)


async def test_only_the_latest_responses_are_kept() -> None:
    async with stand_in() as client:
        ids = [
            (await client.post("/v1/responses", {"input": "Hi", "max_output_tokens": 1}))["id"]
            for _ in range(STORED_RESPONSES + 1)
        ]
        assert [(await client.get(f"/v1/responses/{ids[n]}"))[0] for n in (0, 1, -1)] == [404, 200, 200]


async def test_text_survives_tokenize_and_detokenize() -> None:
    text = "Grüße an alle, 你好!"
    async with stand_in() as client:
        tokenized = await client.post("/tokenize", {"prompt": text})
        back = await client.post("/detokenize", {"tokens": tokenized["tokens"]})
        of_chat = await client.post("/tokenize", chat())
        answered = await client.post("/v1/chat/completions", chat())
    assert back == {"prompt": text}
    assert tokenized["count"] == len(tokenized["tokens"])
    assert of_chat["count"] == answered["usage"]["prompt_tokens"]


async def test_models_are_listed_with_the_adapters_behind_their_base() -> None:
    settings = StandInSettings(models=("base", "adapter"), max_model_len=4096)
    async with stand_in(settings) as client:
        listed = json.loads((await client.get("/v1/models"))[1])
        answered = await client.post("/v1/chat/completions", chat(model="adapter", max_tokens=1))
        unnamed = await client.post("/v1/chat/completions", chat(max_tokens=1))
    base, adapter = listed["data"]
    assert (base["id"], base["root"], base["parent"], base["max_model_len"]) == ("base", "base", None, 4096)
    assert (adapter["id"], adapter["parent"]) == ("adapter", "base")
    assert answered["model"] == "adapter"
    assert unnamed["model"] == "base"


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/load", "/metrics"])
async def test_probes_answer(path: str) -> None:
    async with stand_in() as client:
        assert (await client.get(path))[0] == 200


# What bad requests get.


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        ({"messages": []}, "messages"),
        (chat(max_tokens=0), "max_tokens"),
        (chat(max_tokens=HOURS * 10), "max_tokens"),
        (chat("x" * 4 * 140_000, max_tokens=1), "prompt"),
    ],
)
async def test_a_bad_request_gets_vllms_error(body: Any, param: str | None) -> None:
    async with stand_in() as client:
        status, error = await client.refused("/v1/chat/completions", body)
    assert status == 400
    assert (error["type"], error["code"], error["param"]) == ("BadRequestError", 400, param)
    assert error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"])
async def test_an_unknown_model_is_not_found(path: str) -> None:
    body = {**chat(), "prompt": "hi", "input": "hi", "model": "unheard-of"}
    async with stand_in() as client:
        status, error = await client.refused(path, body)
    assert status == 404
    assert error["type"] == "NotFoundError"
    assert "unheard-of" in error["message"]
    if path == "/v1/messages":  # Anthropic's errors have no more than that
        assert set(error) == {"type", "message"}
    else:
        assert (error["code"], error["param"]) == (404, "model")


async def test_detokenize_of_anything_but_ids_is_a_bad_request() -> None:
    async with stand_in() as client:
        for tokens in (None, "text", ["a"], [-1]):
            assert (await client.refused("/detokenize", {"tokens": tokens}))[0] == 400


async def test_an_unknown_path_and_a_wrong_method_are_told() -> None:
    async with stand_in() as client:
        assert await client.get("/nothing") == (404, b'{"detail":"Not Found"}')
        assert (await client.get("/v1/completions"))[0] == 405


async def test_a_large_body_is_not_refused_for_its_size() -> None:
    body = io.BytesIO(json.dumps(chat(metadata={"x": "y" * 3_000_000})).encode())
    async with stand_in() as client, client.session.post("/v1/chat/completions", data=body) as response:
        assert response.status == 200


# Load, queueing, clients that leave.


async def test_requests_past_the_queue_limit_get_503_and_later_ones_do_not() -> None:
    async with stand_in(StandInSettings(max_num_queued_reqs=1)) as client:
        busy = asyncio.create_task(client.post("/v1/chat/completions", chat(max_tokens=HOURS)))
        await until(lambda: client.engine.running)
        status, error = await client.refused("/v1/chat/completions", chat())
        assert (status, error["code"]) == (503, 503)
        assert json.loads((await client.get("/load"))[1]) == {"server_load": 1}
        await cancel(busy)
        await until(lambda: not client.engine.running)
        await client.post("/v1/chat/completions", chat(max_tokens=1))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["prefill", "decode"])
async def test_a_client_that_hangs_up_frees_its_sequence_at_once(stream: bool, when: str) -> None:
    # In slow motion the prefill never ends; at full speed the answer would take a quarter of an hour.
    settings = StandInSettings(time_scale=1e-6 if when == "prefill" else 1.0)
    async with stand_in(settings) as client:
        body = chat(DOCUMENT, max_tokens=HOURS, stream=stream)
        asking = asyncio.create_task(client.post("/v1/chat/completions", body))
        await until(lambda: client.engine.running)
        if when == "decode":
            await until(lambda: client.engine.counters.generated_tokens)
        await cancel(asking)
        await until(lambda: not client.engine.running)
        assert client.engine.kv_usage == 0.0
        assert client.engine.counters.aborted_requests == 1
        metrics = (await client.get("/metrics"))[1]
    assert b'finished_reason="abort",model_name="simulated-model"} 1.0' in metrics


async def test_a_client_that_leaves_the_queue_is_forgotten() -> None:
    async with stand_in(StandInSettings(time_scale=1e-6)) as client:
        running = asyncio.create_task(client.post("/v1/chat/completions", chat()))
        await until(lambda: client.engine.running)
        waiting = asyncio.create_task(client.post("/v1/chat/completions", chat()))
        await eventually(client.metrics, lambda metrics: metrics.requests_waiting == 1)
        await cancel(waiting)
        await eventually(client.metrics, lambda metrics: metrics.requests_waiting == 0)
        assert client.engine.running == 1
        await cancel(running)


async def test_the_head_of_a_stream_does_not_wait_for_the_first_token() -> None:
    async with (
        stand_in(StandInSettings(time_scale=1e-6)) as client,
        client.session.post("/v1/chat/completions", json=chat(stream=True)) as response,
    ):
        assert response.status == 200
        assert client.engine.counters.generated_tokens == 0


async def test_an_error_leaves_the_connection_usable() -> None:
    async with SimulatedVllm(FAST) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        for body, status in ((b"{", b"400"), (json.dumps(chat()).encode(), b"200")):
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert answer.split()[1] == status
            await reader.readexactly(int(answer.split(b"content-length: ")[1].split()[0]))
        writer.close()
        await writer.wait_closed()


# The real client, and a real process.


async def test_the_openai_client_works_with_it() -> None:
    async with (
        SimulatedVllm(FAST) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        models = [model.id async for model in client.models.list()]
        assert models == ["simulated-model"]
        [model] = models

        answer = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": DOCUMENT}], max_tokens=5
        )
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5

        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": DOCUMENT}],
                max_tokens=5,
                stream=True,
                stream_options={"include_usage": True},
            )
        ]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == answer.choices[0].message.content
        last = chunks[-1].usage
        assert last is not None
        assert last.prompt_tokens_details is not None
        assert last.prompt_tokens_details.cached_tokens

        completion = await client.completions.create(model=model, prompt="Once", max_tokens=3)
        assert len(completion.choices[0].text) == 12

        response = await client.responses.create(model=model, input="Hello", max_output_tokens=4)
        assert len(response.output_text) == 16
        assert response.usage is not None
        assert response.usage.output_tokens == 4
        events = [
            event.type
            async for event in await client.responses.create(
                model=model, input="Hello", max_output_tokens=4, stream=True
            )
        ]
        assert (events[0], events[-1]) == ("response.created", "response.completed")

        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(
                model="unheard-of", messages=[{"role": "user", "content": "hi"}]
            )


async def test_a_process_of_its_own_serves_notices_a_hang_up_and_ends_on_sigterm() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prefix_router.simulate.server", "--port", "0"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        url = (await process.stderr.readline()).decode().split()[-1]
        async with aiohttp.ClientSession(url) as session:

            async def running() -> float | None:
                async with session.get("/metrics") as response:
                    return parse_engine_metrics(await response.read()).requests_running

            async def ask() -> None:
                async with session.post("/v1/chat/completions", json=chat(max_tokens=HOURS)) as response:
                    await response.read()

            asking = asyncio.create_task(ask())
            await eventually(running, lambda count: count == 1)
            await cancel(asking)
            await eventually(running, lambda count: count == 0)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def cancel(task: asyncio.Task[Any]) -> None:
    """Make a client hang up."""
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
