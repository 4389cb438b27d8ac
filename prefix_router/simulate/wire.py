"""Small things that all routes share: a JSON answer, and errors as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from prefix_router.simulate.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_GUARDED = "/v1"
_ANTHROPIC = "/v1/messages"


def json_response(data: Any, status: int = 200) -> web.Response:
    """An answer with `data` as its JSON."""
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


def require_key(keys: Sequence[str]) -> Middleware:
    """Ask for one of `keys` as vLLM's `--api-key` does: below /v1 only, and only as a bearer token."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and token in keys
        if request.path.startswith(_GUARDED) and request.method != "OPTIONS" and not known:
            return json_response({"error": "Unauthorized"}, 401)
        return await handler(request)

    return guard


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into the answers vLLM gives: its own form for the API's, `detail` for the framework's."""
    try:
        return await handler(request)
    except ApiError as error:
        anthropic = request.path.startswith(_ANTHROPIC)
        return json_response(error.anthropic_body() if anthropic else error.body(), error.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        answer = json_response({"detail": error.reason}, error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
