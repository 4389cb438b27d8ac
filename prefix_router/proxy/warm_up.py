"""One short generation, asked of a backend that joins before any client's request goes there.

`/health` is green when the engine's process runs; the first generation still compiles, captures graphs and
fills its allocator. So a client's request is not the one to find out. The generation has a connection of its
own, asks for one token of the backend's first model, and logs in as the backend wants it.
"""

from __future__ import annotations

import msgspec

from prefix_router.openai_api.headers import post_head
from prefix_router.proxy.upstreams import Address, Upstreams, login_of
from prefix_router.routing.fleet import Backend
from prefix_router.upstream.errors import UpstreamError
from prefix_router.upstream.pool import Timeouts

_CONNECT_SECONDS = 5.0
_PROMPT = "Hello"
_NOT_THERE = frozenset((404, 405, 501))


async def generate(upstreams: Upstreams, backend: Backend, model: str | None) -> str | None:
    """Ask for one token; return None when it was answered 2xx, else what was wrong.

    model: None leaves the choice to the backend. A backend without completions is asked by chat. Nothing here
    limits the time that it takes: that is up to the caller, who cancels it.
    """
    asked = {"max_tokens": 1} if model is None else {"model": model, "max_tokens": 1}
    chat = [{"role": "user", "content": _PROMPT}]
    try:
        status = await _post(upstreams, backend, b"/v1/completions", {**asked, "prompt": _PROMPT})
        if status in _NOT_THERE:
            status = await _post(upstreams, backend, b"/v1/chat/completions", {**asked, "messages": chat})
    except UpstreamError as error:
        return str(error)
    return None if 200 <= status < 300 else f"status {status}"


async def _post(upstreams: Upstreams, backend: Backend, path: bytes, question: dict[str, object]) -> int:
    """Return the status when the whole answer is there. Raises UpstreamError."""
    address = Address.of(backend.url, backend.server_name)
    body = msgspec.json.encode(question)
    pool = upstreams.pool(address, Timeouts(_CONNECT_SECONDS, 0, 0, keepalive_seconds=0))
    head = post_head(address.path + path, address.host_header, len(body), login_of(backend))
    response = await pool.send(b"POST", head, body)
    try:
        while await response.read():
            pass  # one token: nothing is kept
        return response.status
    finally:
        response.abort()
