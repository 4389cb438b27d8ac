"""What a case gets: the router, the backends, and the few verbs that cases are written in.

Every verb is bounded in time and says what it waited for when it fails, so that a router that hangs fails
its case with evidence. Connections that a case leaves open are closed after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from conformance.backend import Backend, Script
from conformance.client import ClientConnection
from conformance.endpoints import Endpoint
from conformance.launchers.base import RunningRouter
from conformance.model import CaseFailed, NotApplicable, Variant
from conformance.profile import Profile
from conformance.wire import Answer, BrokenError, ClosedError, request_bytes

PATIENCE_SECONDS = 8.0
"""How long a verb waits unless told otherwise."""


class Context:
    """One run of one variant."""

    def __init__(
        self, router: RunningRouter, backends: list[Backend], variant: Variant, profile: Profile
    ) -> None:
        self.router = router
        self.profile = profile
        self.backends = backends
        self.variant = variant
        self._open: list[ClientConnection] = []

    @property
    def endpoint(self) -> Endpoint:
        """The variant's endpoint."""
        return self.variant.endpoint

    @property
    def streaming(self) -> bool:
        """Whether the variant asks for a stream."""
        return self.variant.streaming

    # Backends

    def script_all(self, script: Script) -> None:
        """Give every backend the same script for work."""
        for backend in self.backends:
            backend.script = script

    @property
    def work_count(self) -> int:
        """Requests that reached a backend."""
        return sum(len(backend.exchanges) for backend in self.backends)

    @property
    def running_count(self) -> int:
        """Requests that a backend has and has not ended."""
        return sum(len(backend.running) for backend in self.backends)

    def served_by(self) -> Backend:
        """Return the only backend that got work. Raises CaseFailed when none or several did."""
        found = [backend for backend in self.backends if backend.exchanges]
        if len(found) != 1:
            lines = [exchange.head.start for backend in found for exchange in backend.exchanges]
            raise CaseFailed(f"{len(found)} backends got the request: {lines}")
        return found[0]

    # Clients

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> ClientConnection:
        """Open a connection to the router. Raises CaseFailed."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                connection = await ClientConnection.open(
                    self.router.host, self.router.port, receive_buffer_bytes=receive_buffer_bytes
                )
        except (OSError, TimeoutError) as error:
            raise CaseFailed(f"the router does not take a connection: {error!r}") from error
        self._open.append(connection)
        return connection

    def request(
        self,
        text: str = "hello",
        *,
        headers: Iterable[tuple[str, str]] = (),
        fields: dict[str, Any] | None = None,
    ) -> bytes:
        """Return the variant's request, as bytes for the wire."""
        body = self.endpoint.request(text, stream=self.streaming, **(fields or {}))
        return request_bytes(self.endpoint.path, body, headers=headers)

    async def start(
        self, data: bytes | None = None, *, receive_buffer_bytes: int | None = None
    ) -> ClientConnection:
        """Send a request (the variant's unless given) on a new connection and return that."""
        data = self.request() if data is None else data
        asked = data[: data.find(b"\r\n")].decode("latin-1").split(" ")[1:2]
        for backend in self.backends:
            backend.token_paths.difference_update(asked)
        connection = await self.connect(receive_buffer_bytes=receive_buffer_bytes)
        await connection.send(data)
        return connection

    async def answer(
        self, connection: ClientConnection, *, seconds: float = PATIENCE_SECONDS, head_only: bool = False
    ) -> Answer:
        """Read a response. Raises CaseFailed when none comes, none in time, or none that is HTTP."""
        try:
            async with asyncio.timeout(seconds):
                return await connection.answer(head_only=head_only)
        except TimeoutError as error:
            raise CaseFailed(f"no complete response within {seconds:g} s") from error
        except ClosedError as error:
            raise CaseFailed("the connection was closed without a response") from error
        except BrokenError as error:
            raise CaseFailed(f"the response is not valid HTTP/1.1: {error}") from error

    async def ask(self, data: bytes | None = None, *, seconds: float = PATIENCE_SECONDS) -> Answer:
        """Send a request (the variant's unless given) on its own connection and read the response."""
        head_only = data is not None and data.startswith(b"HEAD ")
        connection = await self.start(data)
        try:
            return await self.answer(connection, seconds=seconds, head_only=head_only)
        finally:
            connection.close()

    async def try_answer(self, data: bytes | None = None) -> Answer | None:
        """As `ask`, but None when the connection is closed without even a head."""
        connection = await self.start(data)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await connection.answer()
        except ClosedError:
            return None
        except (TimeoutError, BrokenError) as error:
            raise CaseFailed(f"no response that could be read: {error!r}") from error
        finally:
            connection.close()

    async def require_route(self, path: str, *, method: str = "POST", body: bytes = b"{}") -> None:
        """Raise NotApplicable when the router itself says that it has no such route (404, 405, 501)."""
        before = self.work_count
        answer = await self.ask(request_bytes(path, body, method=method))
        if self.work_count == before and answer.status in (404, 405, 501):
            raise NotApplicable(f"the router does not carry {path}")
        for backend in self.backends:
            backend.exchanges.clear()

    # Waiting and looking

    async def wait_until(
        self, condition: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS
    ) -> float:
        """Wait until `condition()` is true; return how long. Raises CaseFailed saying `what` did not come."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise CaseFailed(f"{what}: not within {seconds:g} s")
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def wait_for(
        self, ask: Callable[[], Awaitable[bool]], what: str, *, seconds: float = PATIENCE_SECONDS
    ) -> float:
        """As `wait_until`, for a condition that must be awaited."""
        began = time.monotonic()
        while not await ask():
            if time.monotonic() - began > seconds:
                raise CaseFailed(f"{what}: not within {seconds:g} s")
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def in_flight(self) -> dict[str, int]:
        """Return the router's own counts by backend. Raises NotApplicable where it tells none."""
        counts = await self.router.in_flight()
        if counts is None:
            raise NotApplicable("the router does not tell its counts of requests in flight")
        return counts

    async def expect_nothing_in_flight(self) -> None:
        """Wait until every count that the router tells is 0; nothing is waited for where it tells none."""
        counts: dict[str, int] | None = {}

        async def idle() -> bool:
            nonlocal counts
            counts = await self.router.in_flight()
            return not any((counts or {}).values())

        try:
            await self.wait_for(idle, "counts of requests in flight back at 0", seconds=5)
        except CaseFailed as error:
            raise CaseFailed(f"{error} (they are {counts})") from error

    async def set_backends(self, backends: Sequence[Backend]) -> None:
        """Make `backends` all that the router has, while it runs. Raises NotApplicable or CaseFailed."""
        try:
            await self.router.launcher.set_backends(self.router, self.profile, backends)
        except (OSError, TimeoutError, ClosedError, BrokenError) as error:
            raise CaseFailed(f"the change of backends did not come through: {error!r}") from error

    def memory_bytes(self) -> int:
        """Return the resident memory of the router's process. Raises NotApplicable without a process id."""
        pid = self.router.pid
        if pid is None:
            raise NotApplicable("the router's process id is not known")
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise NotApplicable("the router's process has ended")

    @staticmethod
    def unique(text: str = "") -> str:
        """Return a prompt that nobody has sent before, `text` at its end."""
        return f"{uuid4().hex} {text}"

    def close(self) -> None:
        """Close what the case left open."""
        for connection in self._open:
            connection.close()
        self._open.clear()
