"""The router's own error answers, in the shapes that clients already understand.

OpenAI's shape everywhere, Anthropic's on `/v1/messages`. A backend's error body never passes through
here: it is forwarded as it is.

`ErrorCode` is the closed set of what the router itself says; its values are the `code` on the wire and the
label of the metric, so that one word from a client's log can be searched for on a dashboard.
"""

from __future__ import annotations

from enum import Enum

import msgspec

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorCode(Enum):
    """Every error that the router itself answers with."""

    BAD_REQUEST = "bad_request"
    """Broken HTTP framing."""
    INVALID_AFFINITY_ID = "invalid_affinity_id"
    INVALID_API_KEY = "invalid_api_key"
    """The request shows no key of a client, and `clients` asks for one."""
    MODEL_NOT_FOUND = "model_not_found"
    REQUEST_TIMEOUT = "request_timeout"
    """The client did not send its body in time."""
    REQUEST_TOO_LARGE = "request_too_large"
    TARGET_TOO_LONG = "target_too_long"
    HEADER_TOO_LARGE = "header_too_large"
    """One header is too long, there are too many, or all together are too long."""
    QUEUE_FULL = "queue_full"
    """The router's own limits are reached, and as many requests wait as may wait."""
    QUEUE_TIMEOUT = "queue_timeout"
    """The request has waited for a free backend for as long as it may."""
    INTERNAL_ERROR = "internal_error"
    NOT_IMPLEMENTED = "not_implemented"
    """The request asks for something that the router does not do, such as a protocol upgrade."""
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_BAD_RESPONSE = "backend_bad_response"
    """A backend answered with something that is not HTTP, or less than it promised."""
    BACKEND_BAD_CERTIFICATE = "backend_bad_certificate"
    """The router does not accept a backend's certificate, or the backend does not accept the router's."""
    NO_BACKEND_AVAILABLE = "no_backend_available"
    """Backends are configured, none of them can take the request now."""
    NO_BACKEND_CONFIGURED = "no_backend_configured"
    DRAINING = "draining"
    """The router is shutting down."""
    BACKEND_TIMEOUT = "backend_timeout"

    @property
    def status(self) -> int:
        """The HTTP status that the code goes with."""
        return _STATUSES[self]

    @property
    def type(self) -> str:
        """The `type` of the OpenAI shape."""
        return error_type(self.status)

    def body(self, message: str, param: str | None = None, *, anthropic: bool = False) -> bytes:
        """Return the JSON body of this error."""
        return error_body(self.status, message, self.value, param=param, anthropic=anthropic)


_STATUSES = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.INVALID_AFFINITY_ID: 400,
    ErrorCode.INVALID_API_KEY: 401,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.REQUEST_TIMEOUT: 408,
    ErrorCode.REQUEST_TOO_LARGE: 413,
    ErrorCode.TARGET_TOO_LONG: 414,
    ErrorCode.QUEUE_FULL: 429,
    ErrorCode.QUEUE_TIMEOUT: 429,
    ErrorCode.HEADER_TOO_LARGE: 431,
    ErrorCode.INTERNAL_ERROR: 500,
    ErrorCode.NOT_IMPLEMENTED: 501,
    ErrorCode.BACKEND_UNREACHABLE: 502,
    ErrorCode.BACKEND_BAD_RESPONSE: 502,
    ErrorCode.BACKEND_BAD_CERTIFICATE: 502,
    ErrorCode.NO_BACKEND_AVAILABLE: 503,
    ErrorCode.NO_BACKEND_CONFIGURED: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.BACKEND_TIMEOUT: 504,
}


def error_type(status: int) -> str:
    """Return OpenAI's error type for an HTTP status."""
    if status == 429:
        return "rate_limit_error"
    if status == 503:
        return "service_unavailable_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def anthropic_error_type(status: int) -> str:
    """Return Anthropic's error type for an HTTP status."""
    return _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_body(
    status: int,
    message: str,
    code: str,
    type: str | None = None,  # noqa: A002  (the name of the field on the wire)
    param: str | None = None,
    *,
    anthropic: bool = False,
) -> bytes:
    """Return the JSON body of an error answer; `type` defaults to the one that goes with `status`.

    Anthropic's shape has neither code nor parameter. The message may quote what a client sent, lone
    surrogates included: they are replaced, because an error answer must never fail.
    """
    text = message.encode("utf-8", "replace").decode()
    if anthropic:
        inner = {"type": type or anthropic_error_type(status), "message": text}
        return msgspec.json.encode({"type": "error", "error": inner})
    return msgspec.json.encode(
        {"error": {"message": text, "type": type or error_type(status), "param": param, "code": code}}
    )
