"""What the admin listener lets an operator change: the configuration and who is drained.

    POST /reload                      read the configuration again        200, 409 no file, 422 mistakes
    GET  /config                      the settings in force               200
    POST /backends/{name}/drain       send no new requests there          200, 404
    POST /backends/{name}/undrain     send requests there again           200, 404

All of them may be repeated without harm. A name is percent-encoded like any part of a path. A page of another
site, open in an operator's browser, could post here as well: browsers say where a request comes from, and one
from elsewhere is refused with 403.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as status and JSON document."""

    status: HTTPStatus
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Controls:
    """What can be asked for.

    reload: reads the configuration again; never raises. config: the settings in force. set_draining: (name,
    whether) -> whether there is such a backend. backend: the entry of a backend in `/status`.
    """

    reload: Callable[[], Awaitable[Reply]]
    config: Callable[[], dict[str, Any]]
    set_draining: Callable[[str, bool], bool]
    backend: Callable[[str], dict[str, Any]]


def control_routes(controls: Controls) -> list[web.RouteDef]:
    """Return the routes that call `controls`."""

    async def reload(request: web.Request) -> web.Response:
        return _foreign(request) or json_response(await controls.reload())

    async def config(_: web.Request) -> web.Response:
        return json_response(Reply(HTTPStatus.OK, controls.config()))

    def set_draining(draining: bool) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            name = request.match_info["name"]
            if (refusal := _foreign(request)) is not None:
                return refusal
            if not controls.set_draining(name, draining):
                return json_response(Reply(HTTPStatus.NOT_FOUND, {"error": "no such backend", "name": name}))
            return json_response(Reply(HTTPStatus.OK, controls.backend(name)))

        return handle

    return [
        web.post("/reload", reload),
        web.get("/config", config),
        web.post("/backends/{name}/drain", set_draining(True)),
        web.post("/backends/{name}/undrain", set_draining(False)),
    ]


def json_response(reply: Reply) -> web.Response:
    """Return a response that people can read, too."""
    body = msgspec.json.format(msgspec.json.encode(reply.document), indent=2) + b"\n"
    return web.Response(status=reply.status, body=body, content_type="application/json")


def _foreign(request: web.Request) -> web.Response | None:
    """Refuse what a page of another origin has a browser send."""
    origin = request.headers.get("Origin")
    if origin is None or urlsplit(origin).netloc == request.host:
        return None
    return json_response(Reply(HTTPStatus.FORBIDDEN, {"error": "a page of another origin may not do this"}))
