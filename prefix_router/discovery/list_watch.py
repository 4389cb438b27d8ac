"""List, then watch: keeping a copy of some objects of a Kubernetes API server, for any kind of objects.

The protocol, and what it asks of a client:

    list            in pages; its resourceVersion is where a watch goes on
    watch           ADDED, MODIFIED, DELETED carry whole objects; each has the version to go on from next time
    BOOKMARK        nothing but a version: with it a quiet watch does not fall behind
    410             the version is too old, as the status of the answer or as an ERROR event: list again
    end of stream   normal, every few minutes: go on from the last version

A new list replaces the copy whole: what was deleted while nobody looked is gone from it. Versions are opaque
and are compared with nothing. Failures are retried after longer and longer pauses, with jitter; a server that
says how long to wait (429) is obeyed. An event that was cut off is not an event.

Memory: the objects, cut down by `decode` to what is needed of them. Cost: O(1) for each event.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from prefix_router.discovery.kubernetes_api import ApiError
from prefix_router.discovery.source import Trouble

PAGE = 500
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
_SHORT_SECONDS = 1.0
"""A watch that brings nothing and ends sooner than that is followed by a pause: something is wrong."""

ObjectT = TypeVar("ObjectT")
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Api(Protocol):
    """What is needed of `kubernetes_api.KubernetesApi`."""

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of one answer. Raises ApiError."""

    def lines(self, path: str, query: Mapping[str, str], seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer as they come. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Watched(Generic[ObjectT]):
    """What is watched. path: of the list. watch_seconds: how long one watch lasts, more or less.

    decode: cuts an object in JSON down to what is kept of it; raises msgspec.DecodeError.
    """

    path: str
    decode: Callable[[bytes | msgspec.Raw], ObjectT]
    label_selector: str = ""
    watch_seconds: float = 300


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Object(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _GoneError(Exception):
    """The version is too old."""


class ListWatch(Generic[ObjectT]):
    """The copy. `states` keeps it up to date."""

    def __init__(
        self, api: Api, watched: Watched[ObjectT], first_pause_seconds: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._api = api
        self._watched = watched
        self._first_pause_seconds = first_pause_seconds
        self._objects: dict[Key, ObjectT] = {}
        self._version = ""
        """Where the next watch goes on; "" for nowhere: list first."""
        self._random = random.Random()

    async def states(self) -> AsyncGenerator[Mapping[Key, ObjectT] | Trouble, None]:
        """Yield all objects after each change and each sign of life, and what goes wrong. Never ends.

        The mapping is the copy itself: it is valid until the next state.
        """
        failures = gone = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                    failures = 0
                    yield self._objects
                async with aclosing(self._watch()) as signs:
                    async for _ in signs:
                        failures = gone = 0
                        yield self._objects
            except _GoneError:
                # Listed again at once, unless not even a new version was new enough.
                self._version = ""
                gone += 1
                if gone > 1:
                    await asyncio.sleep(self._pause(gone - 1))
            except ApiError as error:
                failures += 1
                yield Trouble(str(error))
                await asyncio.sleep(max(error.retry_seconds, self._pause(failures)))
            except msgspec.DecodeError as error:
                # What a broken event would have said is not known: only a list can say it now.
                self._version = ""
                failures += 1
                yield Trouble(f"an answer that is none: {error}")
                await asyncio.sleep(self._pause(failures))

    async def _list(self) -> None:
        """Replace the copy. Raises ApiError, msgspec.DecodeError, _GoneError when it took too long."""
        watched = self._watched
        query = {"limit": str(PAGE)}
        if watched.label_selector:
            query["labelSelector"] = watched.label_selector
        objects: dict[Key, ObjectT] = {}
        while True:
            try:
                page = msgspec.json.decode(await self._api.get(watched.path, query), type=_List)
            except ApiError as error:
                if error.status == HTTPStatus.GONE and "continue" in query:
                    del query["continue"]
                    objects.clear()
                    continue
                raise
            for item in page.items or ():
                objects[_key(_metadata(item))] = watched.decode(item)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._objects = objects
        self._version = page.metadata.resource_version
        if not self._version:
            raise ApiError("a list without a resourceVersion")

    async def _watch(self) -> AsyncGenerator[None, None]:
        """Follow changes until the stream ends; yield after each of them, and at the end of a quiet stream.

        Raises ApiError, msgspec.DecodeError, _GoneError.
        """
        watched = self._watched
        seconds = max(1, round(watched.watch_seconds * self._random.uniform(0.8, 1.2)))
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        if watched.label_selector:
            query["labelSelector"] = watched.label_selector
        began = asyncio.get_running_loop().time()
        events = 0
        try:
            async with aclosing(self._api.lines(watched.path, query, seconds)) as lines:
                async for line in lines:
                    self._take(msgspec.json.decode(line, type=_Event))
                    events += 1
                    yield
        except ApiError as error:
            if error.status == HTTPStatus.GONE:
                raise _GoneError from None
            raise
        if not events and asyncio.get_running_loop().time() - began < _SHORT_SECONDS:
            raise ApiError("a watch ended as soon as it had begun")
        yield

    def _take(self, event: _Event) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                metadata = _metadata(event.object)
                self._objects[_key(metadata)] = self._watched.decode(event.object)
            case "DELETED":
                metadata = _metadata(event.object)
                self._objects.pop(_key(metadata), None)
            case "BOOKMARK":
                metadata = _metadata(event.object)
            case "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                if status.code == HTTPStatus.GONE:
                    raise _GoneError
                raise ApiError(f"status {status.code} in a watch: {status.message}", status.code)
            case _:
                return  # of a later protocol
        self._version = metadata.resource_version or self._version

    def _pause(self, failures: int) -> float:
        longest = min(self._first_pause_seconds * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE_SECONDS)
        return longest * self._random.uniform(0.5, 1)


def _metadata(document: msgspec.Raw) -> _Metadata:
    return msgspec.json.decode(document, type=_Object).metadata


def _key(metadata: _Metadata) -> Key:
    return metadata.namespace, metadata.name
