"""The way to an OpenTelemetry collector: OTLP over HTTP, as its specification says it.

One connection, kept open. A request that finds it closed is sent again at once; one that the collector may
take later (no connection, 429, 502, 503, 504) is tried again after growing pauses, for ten seconds at most;
any other answer is final. From the environment come what OpenTelemetry's own exporters take from there:
`OTEL_EXPORTER_OTLP_HEADERS` and `…_CERTIFICATE`, with `…_TRACES_…` before either, and
`OTEL_RESOURCE_ATTRIBUTES`.

Everything here blocks: for a thread only.
"""

from __future__ import annotations

import os
import ssl
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from prefix_router import __version__
from prefix_router.observe.log_lines import cut, printable
from prefix_router.observe.otlp import encoded, rejected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prefix_router.observe.spans import Span

TRACES_PATH: Final = "/v1/traces"
"""Where OTLP over HTTP puts traces, below the collector's endpoint."""

GIVE_UP_SECONDS = 10.0
"""After the first try; a try itself may take `_SOCKET_SECONDS` more."""

_SOCKET_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.5
_MAX_ANSWER_BYTES = 65_536
_MAX_WORDS = 200

_TRY_AGAIN = frozenset(
    (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    )
)


class Collector:
    """One collector. authorization: a value for that header, None for none."""

    def __init__(
        self,
        endpoint: str,
        authorization: str | None,
        service_name: str,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Look at the environment; nothing is connected. What is wrong shows when something is sent."""
        self._url = urlsplit(endpoint)
        self._target = self._url.path.rstrip("/") + TRACES_PATH
        self._headers = {
            **_pairs(_variable(environment, "HEADERS")),
            "Content-Type": "application/x-protobuf",
        }
        if authorization is not None:
            self._headers = {
                name: value for name, value in self._headers.items() if name.lower() != "authorization"
            }
            self._headers["Authorization"] = authorization
        self._authorities = _variable(environment, "CERTIFICATE") or None
        self._resource = {
            **_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
            "service.name": service_name,
            "service.version": __version__,
        }
        self._hurried = Event()
        self._connection: HTTPConnection | None = None

    def send(self, spans: Sequence[Span]) -> tuple[int, str]:
        """Send spans. Return how many of them are lost, and why; 0 when all were taken."""
        body = encoded(spans, self._resource)
        deadline, pause = time.monotonic() + GIVE_UP_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            try:
                status, answer = self._post(body)
            except (OSError, HTTPException, ValueError) as error:
                failure = str(error) or type(error).__name__
            else:
                if status // 100 == 2:
                    count, why = rejected(answer)
                    return count, _words(why)
                failure = f"it answers {status} to {self._target}"
                if status not in _TRY_AGAIN:
                    return len(spans), failure
            late = time.monotonic() + pause > deadline
            if late or self._hurried.wait(pause):
                return len(spans), _words(failure)
            pause *= 2

    def hurry(self) -> None:
        """Try nothing again from now on. May be called from another thread."""
        self._hurried.set()

    def close(self) -> None:
        """Close the connection; another `send` opens one again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes) -> tuple[int, bytes]:
        """Send it once, or twice where the connection was kept and turns out to be closed. Raises OSError,
        HTTPException, and ValueError for headers or certificates that cannot be used."""
        kept = self._connection is not None
        while True:
            connection = self._connection = self._connection or self._connect()
            try:
                connection.request("POST", self._target, body, self._headers)
                response = connection.getresponse()
                answer = response.read(_MAX_ANSWER_BYTES)
                if response.will_close or not response.isclosed():
                    self.close()
            except BaseException as error:
                self.close()
                if kept and isinstance(error, ConnectionError):
                    kept = False
                    continue
                raise
            return response.status, answer

    def _connect(self) -> HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = ssl.create_default_context(cafile=self._authorities)
            return HTTPSConnection(host, port, timeout=_SOCKET_SECONDS, context=context)
        return HTTPConnection(host, port, timeout=_SOCKET_SECONDS)


def _variable(environment: Mapping[str, str], name: str) -> str:
    general = environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")
    return environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "") or general


def _pairs(text: str) -> dict[str, str]:
    """Read `name=value,name=value`, percent-encoded; what is no pair is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in pairs if equals and name}


def _words(text: str) -> str:
    return printable(cut(text, _MAX_WORDS))
