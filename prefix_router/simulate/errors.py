"""Errors as vLLM words them on the wire: a status, and `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that gets an error answer. `param` names the field at fault, if it is one."""

    status = 500
    kind = "InternalServerError"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The JSON of the answer; the code is the status, as a number."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        }

    def anthropic_body(self) -> dict[str, Any]:
        """The same, as `/v1/messages` words it."""
        return {"type": "error", "error": {"type": self.kind, "message": self.message}}


class InvalidRequestError(ApiError):
    """The request is not what the API asks for, or its prompt is too long."""

    status = 400
    kind = "BadRequestError"


class NotFoundError(ApiError):
    """The model or the response does not exist here."""

    status = 404
    kind = "NotFoundError"


class QueueFullError(ApiError):
    """As many requests are in flight as the server was told to take; try another replica."""

    status = 503
    kind = "ServiceUnavailableError"
