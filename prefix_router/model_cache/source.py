"""Where model files come from: the seam between the pull and every kind of origin, and how origins fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from prefix_router.model_cache.manifest import Listing, RemoteFile


class SourceError(Exception):
    """A source did not give what was asked for. The message says what a person can do; it holds no secret."""

    retryable = False
    """Whether the same question may be answered later."""


class NotFoundError(SourceError):
    """There is no such model, revision or file."""


class AccessDeniedError(SourceError):
    """The source knows the asker too little: no or wrong credentials."""


class ChangedError(SourceError):
    """The file is another one than the one that was listed."""


class UnavailableError(SourceError):
    """The source cannot be reached, is overloaded, or broke off."""

    retryable = True


class Source(Protocol):
    """One model at one place."""

    @property
    def url(self) -> str:
        """Where, as an URL without secrets."""

    async def listing(self) -> Listing:
        """Say which files there are now. Raises SourceError."""

    def read(self, file: RemoteFile, start: int, length: int) -> AsyncIterator[bytes]:
        """Yield `length` bytes of a listed file from `start` on.

        Raises SourceError, also when it ends early; ChangedError for a file that is no longer as listed.
        """

    async def close(self) -> None:
        """Let go of connections."""
