"""Which observer watches a response, by the response's own head.

Bodies are never decompressed in the data path, so an encoded one is not observed. Neither is an error
answer: it has no usage, and what it says is the backend's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prefix_router.openai_api.sse import SseObserver
from prefix_router.openai_api.usage import JsonUsageObserver, Usage


class ResponseObserver(Protocol):
    """Watches one response body from the side. No method raises, waits or changes the bytes."""

    @property
    def first_content(self) -> bool:
        """Whether the first generated content of a stream has been fed; always False for other bodies."""

    @property
    def terminal(self) -> bool:
        """Whether the event that ends a stream has been fed; always False for other bodies."""

    @property
    def error(self) -> bool:
        """Whether an error came as an event inside a stream."""

    @property
    def usage(self) -> Usage | None:
        """Token counts, as far as known."""

    @property
    def response_id(self) -> str | None:
        """The id under which the Responses API can continue this response."""

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes of the body."""

    def finish(self) -> None:
        """The body has ended, whole or not."""


class NullObserver:
    """Watches nothing."""

    __slots__ = ()

    first_content = False
    terminal = False
    error = False
    usage: Usage | None = None
    response_id: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Ignore the bytes."""

    def finish(self) -> None:
        """Do nothing."""


def response_observer(
    content_type: bytes | None, content_encoding: bytes | None, status: int
) -> ResponseObserver:
    """Return the observer for a response with these header values (None where the header is absent)."""
    if status // 100 != 2 or content_type is None:
        return NullObserver()
    if content_encoding is not None and content_encoding.strip().lower() not in (b"", b"identity"):
        return NullObserver()
    observer = _OBSERVERS.get(content_type)
    if observer is None:
        media_type = content_type.partition(b";")[0].strip().lower()
        observer = _OBSERVERS.get(media_type, NullObserver)
    return observer()


_OBSERVERS: dict[bytes, Callable[[], ResponseObserver]] = {
    b"application/json": JsonUsageObserver,
    b"text/event-stream": SseObserver,
    b"text/event-stream; charset=utf-8": SseObserver,  # as vLLM has it
}
