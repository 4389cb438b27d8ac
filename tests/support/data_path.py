"""The router's data path without sockets: every await in it is one that a test decides about.

The handler, the line, the dispatcher, the store and the retry table are the real ones, as the router
composes them. Below them, instead of connections, are pools that play scripts; above them a client that is a
list of what was written for it. Both sides come to a `Stage` before each step that could wait, and the stage
says what happens there: go on, wait, or fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiohttp import HttpVersion11
from multidict import CIMultiDict

from prefix_router.app import Router
from prefix_router.data_port import DataPort
from prefix_router.upstream.errors import ErrorKind, UpstreamError
from tests.support.events import Recorder
from tests.support.router import settings_for

if TYPE_CHECKING:
    from prefix_router.proxy.client_request import ClientRequest
    from prefix_router.proxy.upstreams import Address
    from prefix_router.routing.fleet import InFlight
    from prefix_router.upstream.pool import Pool
    from prefix_router.upstream.response import Response, Taker


class Side(Enum):
    """Who is waited for."""

    CLIENT = "client"
    BACKEND_BEFORE_HEAD = "backend before the head of its response"
    BACKEND_IN_BODY = "backend in the body of its response"


class Stage(Protocol):
    """Decides what happens at a step that could wait."""

    async def step(self, client: Client, side: Side) -> None:
        """Return to go on; raise what the step should raise."""


@dataclass(frozen=True, slots=True)
class Play:
    """What one attempt meets. breaks: the body breaks off at its end."""

    status: int = 200
    chunks: tuple[bytes, ...] = (b"{}",)
    content_type: bytes = b"application/json"
    fails: ErrorKind | None = None
    breaks: bool = False


@dataclass
class Attempt:
    """One request to one backend.

    written_before: bytes that its client had got by then. open: until it has failed, or its response ended or
    was given up. over: it has failed, or its response was given up; a response that ended may still be on its
    way to the client.
    """

    backend_url: str
    written_before: int
    open: bool = True
    over: bool = False


@dataclass
class Client:
    """One request, and what was written for it. `paused`: it takes bytes only when the stage lets it."""

    stage: Stage
    plays: list[Play]
    method: str = "POST"
    path: str = "/v1/chat/completions"
    headers: dict[str, str] = field(default_factory=dict)
    body: tuple[bytes, ...] = (b'{"messages":[{"role":"user","content":"hello"}]}',)
    paused: bool = True
    written: bytearray = field(default_factory=bytearray)
    attempts: list[Attempt] = field(default_factory=list)
    gone: bool = False

    @property
    def answer(self) -> bytes:
        """What was written but for interim responses."""
        return bytes(self.written).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")

    def request(self) -> ClientRequest:
        """Return it as the front door would hand it over."""
        return cast("ClientRequest", _Request(self))


class _Transport:
    """The client's connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, data: bytes) -> None:
        self._client.written += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self._client.written += b"".join(pieces)

    def is_closing(self) -> bool:
        return self._client.gone

    def abort(self) -> None:
        self._client.gone = True

    close = abort

    def get_extra_info(self, name: str) -> None:
        return None


class _Content:
    """The body as it arrives."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pieces = list(client.body)

    def is_eof(self) -> bool:
        return False  # it comes piece by piece

    def at_eof(self) -> bool:
        return not self._pieces

    async def readany(self) -> bytes:
        await self._client.stage.step(self._client, Side.CLIENT)
        return self._pieces.pop(0)


class _Request:
    """A `ClientRequest` that is played, and its connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        length = sum(map(len, client.body))
        headers = {"Host": "router.example", **client.headers}
        if "Transfer-Encoding" not in headers:
            headers["Content-Length"] = str(length)
        self.method = client.method
        self.target = client.path
        self.version = HttpVersion11
        self.keep_alive = True
        self.headers = CIMultiDict(headers)
        self.raw_headers = tuple((name.encode(), value.encode()) for name, value in headers.items())
        self.content = _Content(client)
        self.content_length = None if "Transfer-Encoding" in headers else length
        self.body_exists = bool(client.body)
        self.remote = "10.0.0.9"
        self.scheme = b"http"
        self.transport = _Transport(client)
        self.connection = self

    @property
    def writing_paused(self) -> bool:
        """Stands in for the connection."""
        return self._client.paused

    async def drained(self) -> None:
        """Stands in for the connection."""
        await self._client.stage.step(self._client, Side.CLIENT)


class _Response:
    """A response that is played."""

    def __init__(self, client: Client, attempt: Attempt, play: Play) -> None:
        self.status = play.status
        self.reason = b"Status"
        self.headers = [(b"Content-Type", play.content_type)]
        self.content_length = None
        self.content_type = play.content_type
        self.content_encoding = None
        self.connection = ()
        self.complete = False
        self.waiting = False
        self._client = client
        self._attempt = attempt
        self._chunks = list(play.chunks)
        self._breaks = play.breaks

    async def read(self) -> bytes:
        try:
            await self._client.stage.step(self._client, Side.BACKEND_IN_BODY)
            if not self._chunks and self._breaks:
                raise UpstreamError(ErrorKind.TRUNCATED, "played")
        except UpstreamError:
            self._attempt.open = False
            raise
        if self._chunks:
            return self._chunks.pop(0)
        self.complete = True
        self._attempt.open = False
        return b""

    async def pour(self, taker: Taker) -> bool:
        while chunk := await self.read():
            if not taker(chunk, False):
                return False
        return True

    def abort(self) -> None:
        self._attempt.open = False
        self._attempt.over = True


class _Pool:
    """The connections to one backend, as far as the dispatcher needs them."""

    def __init__(self, url: str, path: DataPath) -> None:
        self.timeouts: Any = None
        self._url = url
        self._path = path

    async def send(self, method: bytes, head: bytes, body: Any = b"", **_: Any) -> Response:
        client = self._path.client_of(head)
        attempt = Attempt(self._url, len(client.answer))
        play = client.plays[min(len(client.attempts), len(client.plays) - 1)]
        client.attempts.append(attempt)
        try:
            if play.fails is not ErrorKind.UNREACHABLE and not isinstance(body, bytes):
                async for _piece in cast("AsyncIterator[bytes]", body):
                    await client.stage.step(client, Side.BACKEND_BEFORE_HEAD)
            await client.stage.step(client, Side.BACKEND_BEFORE_HEAD)
            if play.fails is not None:
                raise UpstreamError(play.fails, "played")
        except BaseException:
            attempt.over, attempt.open = True, False
            raise
        return cast("Response", _Response(client, attempt, play))

    def close(self) -> None:
        """Nothing is kept."""


class DataPath:
    """A router whose connections are played. Make it in a running event loop."""

    def __init__(self, backends: int, **sections: Any) -> None:
        self.urls = [f"http://10.0.0.{number + 1}:8000" for number in range(backends)]
        ring = {"routing": {"ring": {"virtual_nodes": 8}}}  # quick to build
        self.router = Router(settings_for(self.urls, **ring, **sections))
        self.recorder = Recorder()
        data = self.router._data
        assert isinstance(data, DataPort)
        self.handler, self._gate = data._handler, data._gate
        self.handler._observer = self.recorder
        self.router._upstreams.pool = self._pool  # type: ignore[method-assign]
        self._clients: dict[str, Client] = {}

    @property
    def counters(self) -> list[InFlight]:
        """The live counts of the fleet as it is now."""
        return [member.in_flight for member in self.router.store.fleet.members]

    @property
    def under_way(self) -> tuple[int, int]:
        """Requests that wait for a backend, and leases, as the gate counts them."""
        return self._gate.waiting, self._gate._admission.in_flight

    async def serve(self, client: Client) -> bool:
        """Serve one request to its end."""
        request_id = f"client-{len(self._clients)}"
        client.headers["X-Request-Id"] = request_id
        self._clients[request_id] = client
        return await self.handler(client.request())

    def client_of(self, head: bytes) -> Client:
        """Return whose request has this head."""
        return self._clients[head.rpartition(b"X-Request-Id: ")[2].partition(b"\r\n")[0].decode()]

    def _pool(self, address: Address, timeouts: object) -> Pool:
        return cast("Pool", _Pool(f"http://{address.host}:{address.port}", self))
