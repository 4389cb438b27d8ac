"""What can go wrong between the router and a backend, as one exception with a closed set of kinds.

A retry rule needs three facts: what happened, whether the connection had been used before, and whether
a response byte had arrived. Every failure of this room carries all three; nothing else leaves it.
"""

from __future__ import annotations

from enum import Enum


class ErrorKind(Enum):
    """What went wrong."""

    UNREACHABLE = "unreachable"
    """Refused, no route, or there is no such name: proof that nobody serves there. Nothing was sent."""
    CONNECT_FAILED = "connect_failed"
    """No connection in time, or not this time (a name server's hiccup, a failed TLS handshake): a hint, no
    proof. Nothing was sent."""
    BAD_CERTIFICATE = "bad_certificate"
    """The backend's certificate is not accepted (expired, another name, an unknown authority), or the backend
    does not accept the router's. No part of the request has been worked on."""
    EXHAUSTED = "exhausted"
    """The router itself has no socket, port or memory left: says nothing of the backend. Nothing was sent."""
    RESET = "reset"
    """The connection ended before the first response byte."""
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    """The request was sent and no response head came within its time."""
    BAD_RESPONSE = "bad_response"
    """What came back is not an HTTP/1.1 response."""
    TRUNCATED = "truncated"
    """The response broke off after its head."""
    IDLE_TIMEOUT = "idle_timeout"
    """The response fell silent after its head."""


class UpstreamError(Exception):
    """A failed exchange with a backend.

    kind: what went wrong. reused: the connection had carried an earlier exchange. detail: for the log
    and the error message; holds addresses and system error texts, never request content.
    """

    def __init__(self, kind: ErrorKind, detail: str, *, reused: bool = False) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        self.reused = reused
