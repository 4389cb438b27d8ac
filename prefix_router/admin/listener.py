"""The admin listener: probes, `/metrics`, `/status`, `/explain`, and `admin.control` and `admin.page`.

It has a port of its own, so that the data port shows nothing of the router's inside; who may ask for what is
in `admin.guard`. It answers from
memory; the one slow thing, rendering metrics, runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web

from prefix_router.admin.control import Controls, Reply, control_routes, json_response
from prefix_router.admin.guard import Guard
from prefix_router.admin.page import PageSources, page_routes

MAX_EXPLAIN_BODY_BYTES = 1024 * 1024
"""Explaining reads the whole body at once, on the loop that serves requests."""


@dataclass(frozen=True, slots=True)
class AdminSources:
    """Where the answers come from.

    collect: brings what other processes have counted up to date, bounded; called before numbers are shown.

    not_ready: why traffic should not come here yet (or any more); None when it may. explain: (body, path,
    headers) -> document. controls, page: see there.
    """

    not_ready: Callable[[], str | None]
    collect: Callable[[], Awaitable[None]]
    render_metrics: Callable[[], bytes]
    status: Callable[[], dict[str, Any]]
    explain: Callable[[bytes, str | None, list[tuple[str, str]]], dict[str, Any]]
    controls: Controls
    page: PageSources


def admin_application(sources: AdminSources, guard: Guard) -> web.Application:
    """Return the application that answers from `sources` whoever `guard` lets through."""

    async def livez(_: web.Request) -> web.Response:
        return _json({"status": "alive"})

    async def readyz(_: web.Request) -> web.Response:
        cause = sources.not_ready()
        if cause is None:
            return _json({"status": "ready"})
        return _json({"status": "not ready", "cause": cause}, status=503)

    async def metrics(_: web.Request) -> web.Response:
        await sources.collect()
        body = await asyncio.to_thread(sources.render_metrics)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def status(_: web.Request) -> web.Response:
        await sources.collect()
        return _json(sources.status())

    async def explain(request: web.Request) -> web.Response:
        body = await request.read()
        # curl says "form data" unless told otherwise; what is explained is a JSON body.
        headers = [pair for pair in request.headers.items() if pair[0].lower() != "content-type"]
        return _json(sources.explain(body, request.query.get("path"), headers))

    application = web.Application(client_max_size=MAX_EXPLAIN_BODY_BYTES, middlewares=[guard.middleware()])
    application.add_routes(
        [
            web.get("/livez", livez),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
            web.get("/status", status),
            web.post("/explain", explain),
            *control_routes(sources.controls),
            *page_routes(sources.page),
        ]
    )
    return application


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    return json_response(Reply(HTTPStatus(status), document))
