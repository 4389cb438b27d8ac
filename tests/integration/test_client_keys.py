"""Keys of clients: who gets in, what the others hear, and that no key reaches a backend."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.support.router import (
    ask,
    chat,
    connect,
    read_answer,
    request_bytes,
    running_router,
    settings_for,
)
from tests.support.scripted_backend import ScriptedBackend, answering
from tests.support.workers import ENOUGH, Workers, workers


def client(name: str, *keys: str) -> dict[str, Any]:
    return {"name": name, "key_sha256": [hashlib.sha256(key.encode()).hexdigest() for key in keys]}


async def test_each_key_of_a_client_gets_in_and_none_reaches_a_backend() -> None:
    async with ScriptedBackend(answering(b"{}")) as backend:
        async with running_router(
            backends=[{"url": backend.url, "name": "a"}], clients=[client("alice", "key-one", "key-two")]
        ) as router:
            for header in (
                ("Authorization", "Bearer key-one"),
                ("Authorization", "Bearer key-two"),
                ("x-api-key", "key-one"),
                ("api-key", "key-two"),
            ):
                answer = await ask(router, chat(), headers=[header])
                assert answer.status == 200
    chats = [request for request in backend.requests if request.target.startswith("/v1/chat")]
    assert len(chats) == 4
    assert not any(b"key-" in value for request in backend.requests for _, value in request.headers)


async def test_a_stranger_hears_401_and_no_backend_hears_of_it() -> None:
    async with ScriptedBackend(answering(b"{}")) as backend:
        async with running_router(
            backends=[{"url": backend.url, "name": "a"}], clients=[client("alice", "key-one")]
        ) as router:
            for headers in ([], [("Authorization", "Bearer wrong")]):
                answer = await ask(router, chat(), headers=headers)
                assert answer.status == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.header_values("www-authenticate") == ["Bearer"]
    assert not any(request.target.startswith("/v1/chat") for request in backend.requests)


async def test_the_body_of_a_stranger_is_not_waited_for() -> None:
    async with ScriptedBackend(answering(b"{}")) as backend:
        async with running_router(
            backends=[{"url": backend.url, "name": "a"}], clients=[client("alice", "key-one")]
        ) as router:
            reader, writer = await connect(router)
            writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: r\r\nContent-Length: 1000000\r\n\r\n")
            answer = await read_answer(reader)
            assert answer.status == 401
            assert answer.json()["error"]["type"] == "authentication_error"
            assert await reader.read() == b""  # closed: what follows must not be taken for a request
            writer.close()


async def test_a_reload_takes_a_key_away_and_brings_another() -> None:
    async with ScriptedBackend(answering(b"{}")) as backend:
        async with running_router(backend.url, clients=[client("alice", "one")]) as router:
            assert (await ask(router, chat(), headers=[("api-key", "one")])).status == 200
            await router.reload(settings_for([backend.url], clients=[client("alice", "two")]))
            assert (await ask(router, chat(), headers=[("api-key", "one")])).status == 401
            assert (await ask(router, chat(), headers=[("api-key", "two")])).status == 200
            await router.reload(settings_for([backend.url]))
            assert (await ask(router, chat())).status == 200


async def test_all_workers_ask_for_keys_and_take_new_ones_over(tmp_path: Path) -> None:
    async def statuses(router: Workers, key: str) -> set[int]:
        """What enough connections hear, so that every worker has some."""
        found: set[int] = set()
        for _ in range(ENOUGH):
            reader, writer = await asyncio.open_connection("127.0.0.1", router.router.port)
            writer.write(request_bytes(chat(), headers=[("Authorization", f"Bearer {key}")]))
            found.add((await read_answer(reader)).status)
            writer.close()
        return found

    async with ScriptedBackend(answering(b"{}")) as backend:
        async with workers(tmp_path, backend.url, clients=[client("alice", "key-one")]) as router:
            assert await statuses(router, "key-one") == {200}
            assert await statuses(router, "key-two") == {401}
            document = json.loads(router.config.read_text())
            document["clients"] = [client("alice", "key-two")]
            router.config.write_text(json.dumps(document))
            assert (await router.admin("/reload", post=True))[0] == 200
            assert await statuses(router, "key-one") == {401}
            assert await statuses(router, "key-two") == {200}
