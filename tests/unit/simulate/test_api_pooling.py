from __future__ import annotations

import base64
import math
import struct
from typing import Any

import aiohttp
import pytest

from prefix_router.simulate.api_pooling import DIMENSIONS, MOST_DIMENSIONS, embed
from prefix_router.simulate.server import SimulatedVllm
from prefix_router.simulate.settings import StandInSettings

POOLING = StandInSettings(runner="pooling", time_scale=1000.0)


async def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with SimulatedVllm(POOLING) as server, aiohttp.ClientSession(server.url) as session:
        async with session.post(path, json=body) as response:
            return response.status, await response.json()


def test_a_vector_has_length_1_and_depends_on_the_text_alone() -> None:
    assert math.isclose(math.hypot(*embed(b"one", 8)), 1.0)
    assert embed(b"one", 8) == embed(b"one", 8) != embed(b"two", 8)


async def test_each_input_gets_a_vector() -> None:
    status, body = await post("/v1/embeddings", {"input": ["one", "two", "one"]})
    assert status == 200
    vectors = [datum["embedding"] for datum in body["data"]]
    assert [len(vector) for vector in vectors] == [DIMENSIONS] * 3
    assert vectors[0] == vectors[2] != vectors[1]
    assert [datum["index"] for datum in body["data"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 0


async def test_a_vector_can_be_packed_and_shorter() -> None:
    asked = {"input": "one", "encoding_format": "base64", "dimensions": 4}
    _, body = await post("/v1/embeddings", asked)
    packed = base64.b64decode(body["data"][0]["embedding"])
    assert math.isclose(math.hypot(*struct.unpack("<4f", packed)), 1.0, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": "one", "model": "unheard-of"}, 404),
        ({"input": "one", "encoding_format": "roman"}, 400),
        ({"input": "one", "dimensions": MOST_DIMENSIONS + 1}, 400),
        ({}, 400),
    ],
)
async def test_a_bad_request_is_refused(body: dict[str, Any], status: int) -> None:
    assert (await post("/v1/embeddings", body))[0] == status


async def test_a_pooling_server_generates_no_text() -> None:
    assert (await post("/v1/completions", {"prompt": "one"}))[0] == 404
