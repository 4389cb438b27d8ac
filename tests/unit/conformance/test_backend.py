"""The scriptable backend does to the byte what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from conformance.backend import Backend
from conformance.client import ClientConnection
from conformance.endpoints import Endpoint
from conformance.exchange import head_bytes
from conformance.runner import make_backend
from conformance.scripts import answering, echoing, hanging, sending, streaming
from conformance.wire import Answer, ClosedError, request_bytes
from tests.support.waiting import until


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = make_backend("a")
    await backend.start()
    yield backend
    await backend.refuse()


def request(text: str = "hello") -> bytes:
    return request_bytes(Endpoint.CHAT.path, Endpoint.CHAT.request(text))


async def ask(backend: Backend, data: bytes) -> Answer:
    async with await ClientConnection.open("127.0.0.1", backend.port) as connection:
        await connection.send(data)
        return await connection.answer()


async def test_it_echoes_the_exact_bytes_of_a_request(backend: Backend) -> None:
    backend.script = echoing
    data = request("caf\u00e9")
    document = (await ask(backend, data)).json()
    assert (document["head"] + document["body"]).encode("latin-1") == data


async def test_it_reads_chunked_requests(backend: Backend) -> None:
    body = Endpoint.CHAT.request()
    await ask(backend, request_bytes(Endpoint.CHAT.path, body, chunks=[body[:3], body[3:]]))
    assert backend.exchanges[0].body == body


@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_response_cut_short_is_seen_as_cut(backend: Backend, then: str) -> None:
    backend.script = sending(head_bytes(200, [("Content-Length", "10")]) + b"half", then=then)
    answer = await ask(backend, request())
    assert (answer.body, answer.complete) == (b"half", False)


async def test_bytes_may_be_cut_anywhere(backend: Backend) -> None:
    data = head_bytes(200, [("Transfer-Encoding", "chunked")]) + b"2\r\nab\r\n0\r\n\r\n"
    for at in range(1, len(data)):
        backend.script = sending(data, pieces=(at,))
        assert (await ask(backend, request())).body == b"ab"


async def test_it_closes_exactly_on_the_nth_reuse(backend: Backend) -> None:
    backend.close_on_reuse = 2
    async with await ClientConnection.open("127.0.0.1", backend.port) as connection:
        for _ in range(2):
            await connection.send(request())
            assert (await connection.answer()).status == 200
        await connection.send(request())
        with pytest.raises(ClosedError):
            await connection.answer()


async def test_it_closes_an_idle_connection(backend: Backend) -> None:
    backend.idle_close_seconds = 0.01
    async with await ClientConnection.open("127.0.0.1", backend.port) as connection:
        await connection.send(request())
        await connection.answer()
        await connection.closed.wait()


async def test_it_refuses_and_comes_back_on_the_same_port(backend: Backend) -> None:
    await backend.refuse()
    with pytest.raises(ConnectionRefusedError):
        await ask(backend, request())
    await backend.start()
    assert (await ask(backend, request())).status == 200


async def test_it_knows_when_a_client_has_left(backend: Backend) -> None:
    backend.script = hanging
    async with await ClientConnection.open("127.0.0.1", backend.port) as connection:
        await connection.send(request())
        await until(lambda: backend.running)
    await until(lambda: backend.aborted)
    assert backend.running == []
    assert backend.highest_concurrency == 1


async def test_what_a_router_asks_for_itself_is_no_work(backend: Backend) -> None:
    backend.control.health = answering(500)
    for path, status in (("/health", 500), ("/v1/models", 200), ("/metrics", 200)):
        assert (await ask(backend, request_bytes(path, method="GET"))).status == status
    assert backend.exchanges == []
    assert len(backend.control_requests) == 3


async def test_its_prefix_cache_counts_like_vllm(backend: Backend) -> None:
    body = Endpoint.CHAT.request("x" * 640)
    for _ in range(2):
        await ask(backend, request("x" * 640))
    hit = len(body) // 64 * 16
    metrics = (await ask(backend, request_bytes("/metrics", method="GET"))).body.decode()
    assert f'vllm:prefix_cache_hits_total{{engine="0",model_name="conformance-model"}} {hit}.0' in metrics
    assert backend.cache.queried_tokens == 2 * (len(body) // 4)


async def test_a_reset_brings_the_defaults_back(backend: Backend) -> None:
    backend.script = streaming([b"x"])
    await ask(backend, request())
    backend.reset()
    assert backend.exchanges == []
    assert (await ask(backend, request())).body == Endpoint.CHAT.answer()
