"""The routes of a stand-in vLLM that generate nothing: models, probes, metrics, tokens, cache reset."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from prefix_router import __version__
from prefix_router.engine.block_hash import pack_token_ids
from prefix_router.simulate import asks, tokens
from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.wire import json_response

if TYPE_CHECKING:
    from prefix_router.simulate.driver import EngineDriver
    from prefix_router.simulate.metrics import EngineMetrics
    from prefix_router.simulate.settings import StandInSettings

_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class InfoApi:
    """The informing routes of one stand-in."""

    def __init__(self, driver: EngineDriver, settings: StandInSettings, metrics: EngineMetrics) -> None:
        self._driver = driver
        self._settings = settings
        self._metrics = metrics
        self._created = int(time.time())

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes at vLLM's paths."""
        router.add_get("/v1/models", self._models)
        router.add_post("/v1/messages/count_tokens", self._count_tokens)
        router.add_post("/tokenize", self._tokenize)
        router.add_post("/detokenize", self._detokenize)
        router.add_post("/reset_prefix_cache", self._reset_prefix_cache)
        router.add_get("/health", self._ok)
        router.add_get("/ping", self._ok)
        router.add_post("/ping", self._ok)
        router.add_get("/version", self._version)
        router.add_get("/load", self._load)
        router.add_get("/metrics", self._show_metrics)

    async def _models(self, request: web.Request) -> web.Response:
        base, *adapters = self._settings.models
        context = self._settings.context_tokens
        models = [self._model(base, base, None, context)]
        models += [self._model(adapter, adapter, base, None) for adapter in adapters]
        return json_response({"object": "list", "data": models})

    def _model(self, name: str, root: str, parent: str | None, context: int | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": context,
            "permission": [],
        }

    async def _count_tokens(self, request: web.Request) -> web.Response:
        prompt = asks.render_messages_prompt(asks.decode_body(await request.read()))
        return json_response({"input_tokens": tokens.count(prompt)})

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = tokens.to_ids(asks.read_tokenize(asks.decode_body(await request.read())))
        context = self._settings.context_tokens
        return json_response({"count": len(ids), "max_model_len": context, "tokens": ids, "token_strs": None})

    async def _detokenize(self, request: web.Request) -> web.Response:
        ids = asks.decode_body(await request.read()).get("tokens")
        try:
            if not isinstance(ids, list):
                raise TypeError
            packed = pack_token_ids(ids)
        except (TypeError, OverflowError):
            raise InvalidRequestError("tokens must be a list of token ids", "tokens") from None
        return json_response({"prompt": tokens.decode(packed)})

    async def _reset_prefix_cache(self, request: web.Request) -> web.Response:
        # Like vLLM it answers 200 also when requests are running and nothing is reset.
        self._driver.engine.reset_prefix_cache()
        return web.Response()

    async def _ok(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, request: web.Request) -> web.Response:
        return json_response({"version": f"{__version__}+simulated"})

    async def _load(self, request: web.Request) -> web.Response:
        return json_response({"server_load": self._driver.in_flight})

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": _PROMETHEUS_TEXT})
