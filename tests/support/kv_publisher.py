"""A publisher of KV events that behaves as vLLM's, and misbehaves on demand: real sockets on loopback.

As in vLLM one thread serves both sockets; here that is the test's own event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

END = (-1).to_bytes(8, "big", signed=True)


def stored(
    hashes: Sequence[int | bytes],
    token_ids: Sequence[int],
    *,
    parent: int | bytes | None = None,
    block_size: int = 4,
    **fields: Any,
) -> dict[str, Any]:
    """A BlockStored event, as current versions write it."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(token_ids),
        "block_size": block_size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **fields,
    }


def removed(*hashes: int | bytes, **fields: Any) -> dict[str, Any]:
    """A BlockRemoved event."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **fields}


def cleared() -> dict[str, Any]:
    """An AllBlocksCleared event."""
    return {"type": "AllBlocksCleared"}


class Publisher:
    """One engine's publisher. Use it as an async context.

    answers: whether the replay socket is served. buffer: what a replay can give; a test may take from it.
    skipped: numbers that a replay leaves out once, one in each answer. names_topic: as current versions do
    in replays.
    """

    def __init__(self, *, replay: bool = True, port: int = 0, replay_port: int = 0) -> None:
        self.number = 0
        self.life = 0
        self.buffer: list[tuple[int, bytes]] = []
        self.asked_from: list[int] = []
        self.answers = True
        self.skipped: set[int] = set()
        self.names_topic = True
        self._context = zmq.asyncio.Context()
        self._live = self._context.socket(zmq.XPUB)
        self._live.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._live.setsockopt(zmq.LINGER, 0)
        self.endpoint = _bound(self._live, port)
        self._router: zmq.asyncio.Socket | None = None
        self.replay: str | None = None
        if replay:
            self._router = self._context.socket(zmq.ROUTER)
            self._router.setsockopt(zmq.LINGER, 0)
            self.replay = _bound(self._router, replay_port)
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._router is not None:
            self._serving = asyncio.get_running_loop().create_task(self._serve(self._router))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        self._live.close()
        if self._router is not None:
            self._router.close()
        self._context.term()

    async def subscribed(self) -> None:
        """Wait until a subscriber is heard of."""
        while (await self._live.recv())[:1] != b"\x01":
            pass

    async def publish(self, *events: Any, sent: bool = True, buffered: bool = True) -> int:
        """Send one batch, or only pretend to; return its number."""
        number = self.number
        payload = msgspec.msgpack.encode([1e9 + self.life * 1e6 + number, list(events), 0])
        await self.publish_bytes(payload, sent=sent, buffered=buffered)
        return number

    async def publish_bytes(self, payload: bytes, *, sent: bool = True, buffered: bool = True) -> None:
        """Send a batch of any bytes under the next number."""
        if sent:
            await self._live.send_multipart([b"kv", self.number.to_bytes(8, "big"), payload])
        if buffered:
            self.buffer.append((self.number, payload))
        self.number += 1

    async def send_frames(self, *frames: bytes) -> None:
        """Send anything."""
        await self._live.send_multipart(list(frames))

    def restart(self) -> None:
        """Begin another life on the same sockets: the numbers begin at 0 and the buffer is empty."""
        self.life += 1
        self.number = 0
        self.buffer.clear()

    async def _serve(self, router: zmq.asyncio.Socket) -> None:
        while True:
            client, _, asked = await router.recv_multipart()
            start = int.from_bytes(asked, "big")
            self.asked_from.append(start)
            if not self.answers:
                continue
            topic = [b"kv"] if self.names_topic else []
            skip = min((number for number in self.skipped if number >= start), default=None)
            self.skipped.discard(skip if skip is not None else -1)
            for number, payload in list(self.buffer):
                if number == skip:
                    continue
                if number >= start:
                    await router.send_multipart([client, b"", *topic, number.to_bytes(8, "big"), payload])
            await router.send_multipart([client, b"", *([b""] if self.names_topic else []), END, b""])


def _bound(socket: zmq.asyncio.Socket, port: int) -> str:
    if port:
        socket.bind(f"tcp://127.0.0.1:{port}")
    else:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
    return f"tcp://127.0.0.1:{port}"
