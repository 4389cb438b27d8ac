"""The admin page, and the numbers it draws.

    GET /                 the page                                             200
    GET /page/{file}      its style and scripts, from the package              200, 404
    GET /history          the last hour; ?since=NEXT&epoch=EPOCH for the rest  200, 400
    GET /keys             the most frequent keys; ?limit=                      200, 400

The page is static: it holds nothing of the router, and everything on it comes from these endpoints, `/status`
and what `admin.control` offers. Its content security policy lets a browser load, and talk to, nothing but
this listener, and run no script that stands in the document. Its files are read when this module is imported,
like code, because the event loop must not wait for a disk.

A large history takes milliseconds to make, so that is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from math import isfinite
from typing import Any, Final

import msgspec
from aiohttp import web

from prefix_router.admin.control import Reply, json_response

PAGE_FILES: Final = {
    "index.html": "text/html",
    "style.css": "text/css",
    "app.js": "text/javascript",
    "api.js": "text/javascript",
    "charts.js": "text/javascript",
    "dom.js": "text/javascript",
    "explain.js": "text/javascript",
    "fleet.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "overview.js": "text/javascript",
}

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_FOLDER = files("prefix_router.admin").joinpath("page_files")
_CONTENTS = {name: _FOLDER.joinpath(name).read_bytes() for name in PAGE_FILES}

DEFAULT_KEYS: Final = 20
MAX_KEYS: Final = 256


@dataclass(frozen=True, slots=True)
class PageSources:
    """Where the numbers come from.

    collect: brings what other processes have counted up to date, bounded. history: (since, epoch) ->
    document; called in a thread. keys: (limit) -> document.
    """

    collect: Callable[[], Awaitable[None]]
    history: Callable[[float, str | None], dict[str, Any]]
    keys: Callable[[int], dict[str, Any]]


def page_routes(sources: PageSources) -> list[web.RouteDef]:
    """Return the routes of the page."""

    def served(name: str) -> web.Response:
        return web.Response(
            body=_CONTENTS[name], content_type=PAGE_FILES[name], charset="utf-8", headers=HEADERS
        )

    async def index(_: web.Request) -> web.Response:
        return served("index.html")

    async def part(request: web.Request) -> web.Response:
        name = request.match_info["file"]
        return served(name) if name in _CONTENTS else _refused(HTTPStatus.NOT_FOUND, "no such file")

    async def history(request: web.Request) -> web.Response:
        try:
            since = float(request.query.get("since", "0"))
        except ValueError:
            since = -1.0
        if not isfinite(since) or since < 0:
            return _refused(HTTPStatus.BAD_REQUEST, "since must be a number of seconds, 0 or more")
        await sources.collect()
        body = await asyncio.to_thread(_encoded, sources.history, since, request.query.get("epoch"))
        return web.Response(body=body, content_type="application/json")

    async def keys(request: web.Request) -> web.Response:
        text = request.query.get("limit", str(DEFAULT_KEYS))
        if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_KEYS):
            return _refused(HTTPStatus.BAD_REQUEST, f"limit must be a whole number from 1 to {MAX_KEYS}")
        await sources.collect()
        return json_response(Reply(HTTPStatus.OK, sources.keys(int(text))))

    return [
        web.get("/", index),
        web.get("/page/{file}", part),
        web.get("/history", history),
        web.get("/keys", keys),
    ]


def _encoded(
    history: Callable[[float, str | None], dict[str, Any]], since: float, epoch: str | None
) -> bytes:
    return msgspec.json.encode(history(since, epoch)) + b"\n"


def _refused(status: HTTPStatus, error: str) -> web.Response:
    return json_response(Reply(status, {"error": error}))
