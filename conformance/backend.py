"""The scriptable backend: a server whose every byte, pause and close a case decides.

It looks like a vLLM to a router: `/health`, `/v1/models` and `/metrics` answer by themselves (`Control`
says how), everything else is work and goes to `script`. A script gets one `Exchange` (one request) and
plays it; when the router goes away the script is cancelled, as an engine would abort, and the time is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.backend_connection import BackendConnection
from conformance.endpoints import MODEL
from conformance.exchange import Exchange
from conformance.prefix_cache import PrefixCache
from conformance.tokenizing import tokenize

Script = Callable[[Exchange], Awaitable[None]]

CONTROL_PATHS = frozenset(
    {
        "/health",
        "/v1/models",
        "/metrics",
        "/version",
        "/ping",
        "/load",
        "/get_load",
        "/v1/loads",
        "/server_info",
        "/get_server_info",
        "/model_info",
        "/get_model_info",
    }
)
"""What routers ask backends on their own account; never counted as work."""

TOKEN_PATHS = frozenset(
    {"/v1/chat/completions/render", "/v1/completions/render", "/v1/responses/render", "/tokenize"}
)
"""Where some routers post each prompt to learn its tokens before they choose a backend. `/tokenize` answers
as vLLM does, the others are paths that not every vLLM has. Not work unless the case itself asks there."""

_KEPT_CONTROL_REQUESTS = 10_000


@dataclass
class Control:
    """How the control paths answer. `health`, `models`, `metrics`: a script that replaces the default."""

    health: Script | None = None
    models: Script | None = None
    metrics: Script | None = None
    model_objects: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL}
            | {"max_model_len": 8192}
        ]
    )


class Backend:
    """One backend. Set its fields, then send requests; `reset` brings the defaults back.

    script: what is done with work. control: see Control. silent: connections are accepted and nothing is
    ever read. idle_close_seconds: an unused connection is closed after so long. close_on_reuse: n means that
    a connection is closed, unanswered, as its (n + 1)-th request since the last reset arrives.
    read_body_first: whether the request body is read before the script starts. token_paths: see TOKEN_PATHS.
    """

    def __init__(self, name: str, default: Script) -> None:
        self.name = name
        self.port = 0
        self.default = default
        self._servers: list[asyncio.Server] = []
        self.connections: set[BackendConnection] = set()
        self.connections_made = 0
        self.reset()

    def reset(self) -> None:
        """Forget what was seen and behave again."""
        self.script = self.default
        self.control = Control()
        self.cache = PrefixCache()
        self.silent = False
        self.idle_close_seconds: float | None = None
        self.close_on_reuse: int | None = None
        self.read_body_first = True
        self.token_paths = set(TOKEN_PATHS)
        self.exchanges: list[Exchange] = []
        self.control_requests: deque[Exchange] = deque(maxlen=_KEPT_CONTROL_REQUESTS)
        self.script_errors: list[str] = []
        self.highest_concurrency = 0
        for connection in list(self.connections):
            connection.uses = 0
            if connection.busy:
                connection.abort()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> list[Exchange]:
        """Work that has come and is not over."""
        return [exchange for exchange in self.exchanges if exchange.ended_at is None]

    @property
    def aborted(self) -> list[Exchange]:
        """Work that the router gave up."""
        return [exchange for exchange in self.exchanges if exchange.aborted_at is not None]

    @property
    def listening(self) -> bool:
        """Whether connections are accepted."""
        return bool(self._servers)

    async def start(self) -> None:
        """Listen, on IPv6 as well where there is one; again on the same port after `refuse`."""
        if self._servers:
            return
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: BackendConnection(self), "127.0.0.1", self.port, backlog=4096
        )
        self.port = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        with contextlib.suppress(OSError):  # no IPv6 here; cases that need it say so
            self._servers.append(await loop.create_server(lambda: BackendConnection(self), "::1", self.port))

    async def refuse(self) -> None:
        """Refuse connections from now on, and cut those that are open."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    async def serve(self, exchange: Exchange, connection: BackendConnection) -> None:
        """Play one request; called by the connection."""
        path = exchange.path.partition("?")[0]
        if path in (CONTROL_PATHS if exchange.method in ("GET", "HEAD") else self.token_paths):
            self.control_requests.append(exchange)
            await self._answer_control(exchange, path)
            return
        self.exchanges.append(exchange)
        self.highest_concurrency = max(self.highest_concurrency, len(self.running))
        try:
            if self.close_on_reuse is not None and exchange.use == self.close_on_reuse:
                connection.abort()
                return
            if self.read_body_first:
                await exchange.read_body()
            await self.script(exchange)
        except asyncio.CancelledError:
            if connection.gone_at is not None:
                exchange.aborted_at = connection.gone_at
            raise
        finally:
            exchange.ended_at = time.monotonic()

    async def _answer_control(self, exchange: Exchange, path: str) -> None:
        control = self.control
        replaced = {"/health": control.health, "/v1/models": control.models, "/metrics": control.metrics}
        script = replaced.get(path)
        if script is not None:
            await script(exchange)
        elif path == "/tokenize" and (tokens := tokenize(await exchange.read_body())) is not None:
            await exchange.respond(200, tokens)
        elif path == "/metrics":
            text = self.cache.metrics(len(self.running))
            await exchange.respond(200, text, content_type="text/plain; version=0.0.4")
        elif path == "/v1/models":
            listing = {"object": "list", "data": control.model_objects}
            await exchange.respond(200, json.dumps(listing).encode())
        elif path in ("/health", "/ping"):
            await exchange.respond(200, b"")
        elif path == "/version":
            await exchange.respond(200, b'{"version": "0.11.0"}')
        else:
            await exchange.respond(404, b'{"detail": "Not Found"}')
