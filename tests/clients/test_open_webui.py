"""The requests that Open WebUI sends to an "OpenAI API" connection, by the HTTP client that it uses.

Open WebUI itself is not run: what it sends is written out here, headers of its users and chats included.
"""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.client_fleet import CHAT_MODEL, EMBEDDING_MODEL, KEY
from tests.support.sse import read_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients

HEADERS = {
    "Authorization": f"Bearer {KEY}",
    "X-OpenWebUI-User-Name": "J%C3%BCrgen%20Example",
    "X-OpenWebUI-User-Id": "6f1d1c5e-0000-4000-8000-000000000001",
    "X-OpenWebUI-User-Email": "user@example.org",
    "X-OpenWebUI-User-Role": "user",
    "X-OpenWebUI-Chat-Id": "6f1d1c5e-0000-4000-8000-000000000002",
}
QUESTION = {
    "role": "user",
    "content": "Explain the plan. " + "It has many parts, and each has its reasons. " * 150,
}


@asynccontextmanager
async def connection(fleet: ClientFleet) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(fleet.url, headers=HEADERS) as session:
        yield session


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    usage = {"stream_options": {"include_usage": True}}
    return {"stream": True, "model": CHAT_MODEL, "messages": messages, "max_tokens": 8, **usage, **fields}


async def streamed(session: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[str, int, str]:
    """The text, the cached tokens and the backend."""
    async with session.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        *chunks, end = read_events(await response.read())
        backend = response.headers["X-Prefix-Router-Backend"]
    assert end == "[DONE]"
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    return text, chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], backend


async def test_the_list_of_models_fills_its_menu(fleet: ClientFleet) -> None:
    async with connection(fleet) as session, session.get("/v1/models") as response:
        listed = await response.json()
    assert listed["object"] == "list"
    assert {model["id"] for model in listed["data"]} == {CHAT_MODEL, EMBEDDING_MODEL}


async def test_a_conversation_stays_where_its_first_turn_is_cached(fleet: ClientFleet) -> None:
    async with connection(fleet) as session:
        answer, _, first = await streamed(session, chat(QUESTION))
        turns = (QUESTION, {"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"})
        _, cached, second = await streamed(session, chat(*turns))
    assert second == first
    assert cached > 1000


async def test_a_title_is_asked_for_in_one_piece(fleet: ClientFleet) -> None:
    task = {"role": "user", "content": '### Task:\nGenerate a concise title in JSON: { "title": "..." }'}
    body = {"model": CHAT_MODEL, "messages": [task], "stream": False, "max_completion_tokens": 1000}
    async with connection(fleet) as session, session.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200
        assert (await response.json())["choices"][0]["message"]["content"]


async def test_a_picture_goes_along_as_a_data_url(fleet: ClientFleet) -> None:
    picture = "data:image/png;base64," + base64.b64encode(bytes(300_000)).decode()
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture}}]
    async with connection(fleet) as session:
        text, _, _ = await streamed(session, chat({"role": "user", "content": parts}))
    assert text


async def test_documents_for_retrieval_are_embedded_in_batches(fleet: ClientFleet) -> None:
    body = {"input": [f"passage {number}" for number in range(32)], "model": EMBEDDING_MODEL}
    async with connection(fleet) as session, session.post("/v1/embeddings", json=body) as response:
        assert response.status == 200
        assert len((await response.json())["data"]) == 32
        assert response.headers["X-Prefix-Router-Backend"].startswith("embed-")
