"""The route of a stand-in vLLM that makes embeddings (`--runner pooling`), on top of the same engine.

An embedding is a prompt that is computed and one step; its prefix is reused as any other. The vector has unit
length and depends on the text alone, so that equal texts are near each other and different ones are not.
Not imitated: meaning, and embeddings of messages.
"""

from __future__ import annotations

import base64
import math
import struct
import time
import uuid
from random import Random
from typing import TYPE_CHECKING, Any

from prefix_router.simulate import asks, prompts
from prefix_router.simulate.errors import InvalidRequestError, NotFoundError
from prefix_router.simulate.jobs import plan
from prefix_router.simulate.wire import json_response

if TYPE_CHECKING:
    from aiohttp import web

    from prefix_router.simulate.driver import EngineDriver
    from prefix_router.simulate.settings import StandInSettings

DIMENSIONS = 64
"""Length of a vector whose request does not say."""

MOST_DIMENSIONS = 4096


class PoolingApi:
    """The route for embeddings of one stand-in."""

    def __init__(self, driver: EngineDriver, settings: StandInSettings) -> None:
        self._driver = driver
        self._settings = settings

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the route at vLLM's path."""
        router.add_post("/v1/embeddings", self._embed)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        body = asks.decode_body(await request.read())
        model = asks.read_model(body) or self._settings.models[0]
        if model not in self._settings.models:
            raise NotFoundError(f"The model `{model}` does not exist.", "model")
        encoding = body.get("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise InvalidRequestError(f"encoding_format {encoding!r} is not known", "encoding_format")
        dimensions = asks.read_positive(body, "dimensions") or DIMENSIONS
        if dimensions > MOST_DIMENSIONS:
            raise InvalidRequestError(f"dimensions must be at most {MOST_DIMENSIONS}", "dimensions")
        ask = asks.Ask(model, prompts.render_completion(body.get("input")), max_tokens=1)
        job = plan(ask, model, self._settings)
        generation = self._driver.submit(job.requests)
        try:
            await generation.complete()
        finally:
            self._driver.withdraw(generation)
        usage = job.usage()
        vectors = [embed(prompt, dimensions) for prompt in ask.prompts]
        return json_response(
            {
                "id": f"embd-{uuid.uuid4().hex}",
                "object": "list",
                "created": int(time.time()),
                "model": model,
                "data": [_datum(index, vector, encoding) for index, vector in enumerate(vectors)],
                "usage": {
                    "prompt_tokens": usage.prompt_tokens,
                    "total_tokens": usage.prompt_tokens,
                    "completion_tokens": 0,
                    "prompt_tokens_details": None,
                },
            }
        )


def embed(prompt: bytes, dimensions: int) -> list[float]:
    """A vector of length 1 that depends on `prompt` alone."""
    random = Random(prompt)
    values = [random.gauss(0.0, 1.0) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]


def _datum(index: int, vector: list[float], encoding: str) -> dict[str, Any]:
    packed: Any = vector
    if encoding == "base64":
        packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return {"index": index, "object": "embedding", "embedding": packed}
