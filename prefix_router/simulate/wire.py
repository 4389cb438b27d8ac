"""Small things that all routes share: a JSON answer, and errors as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from prefix_router.simulate.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def json_response(data: Any, status: int = 200) -> web.Response:
    """An answer with `data` as its JSON."""
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


@web.middleware
async def answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn errors into the answers vLLM gives: its own form for the API's, `detail` for the framework's."""
    try:
        return await handler(request)
    except ApiError as error:
        return json_response(error.body(), error.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        answer = json_response({"detail": error.reason}, error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
