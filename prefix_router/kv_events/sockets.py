"""The two sockets of an engine's KV events, and what their messages look like.

Live messages come from a PUB socket: `[topic, number, batch]`, the number as eight bytes, big end first.
Old ones can be had again from a ROUTER socket: ask `["", number]`, and every message from that number on
comes as `["", topic, number, batch]` (old versions leave out the topic), then one with number -1.

libzmq connects and reconnects by itself, in a thread of its own, with pauses that grow to five seconds; it
probes a silent connection every five, and gives it up after fifteen. It holds a bounded number of messages
for us and drops what comes then. Every await here lets others run, also when a message is there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

WAITING_MESSAGES = 10_000
"""What libzmq holds for us, of each socket."""

_END = (-1).to_bytes(8, "big", signed=True)
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Message(NamedTuple):
    """A numbered batch."""

    number: int
    payload: bytes


class LiveSocket:
    """The live messages of one engine. Open it, read it with `wait`, close it."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        """Begin to connect. Raises zmq.ZMQError for an endpoint that cannot be."""
        self.connected = False
        self.malformed = 0
        """Messages that were not shaped like one."""
        self._message: asyncio.Future[Any] | None = None
        self._change: asyncio.Future[Any] | None = None
        self._socket = context.socket(zmq.SUB)
        try:
            _set_options(self._socket)
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
            self._monitor = self._socket.get_monitor_socket(_EVENTS)
            self._socket.connect(endpoint)
        except zmq.ZMQError:
            self._socket.close(linger=0)
            raise

    async def wait(self, seconds: float) -> tuple[Message | None, bool]:
        """Return the next message, if one came within `seconds`, and whether the connection was lost."""
        self._message = self._message or asyncio.ensure_future(self._socket.recv_multipart())
        self._change = self._change or asyncio.ensure_future(self._monitor.recv_multipart())
        # Not a timeout around the receiving: one that comes at the wrong moment loses a message.
        done, _ = await asyncio.wait(
            (self._message, self._change), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        lost = False
        if self._change in done:
            event = parse_monitor_message(self._change.result())["event"]
            self._change = None
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            lost = not self.connected
        if self._message not in done:
            return None, lost
        frames = self._message.result()
        self._message = None
        message = _message(frames[1:])
        if message is None:
            self.malformed += 1
        return message, lost

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        for future in (self._message, self._change):
            if future is not None:
                future.cancel()
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close(linger=0)


async def messages_since(
    context: zmq.asyncio.Context, endpoint: str, number: int, patience_seconds: float
) -> AsyncGenerator[Message, None]:
    """Yield what an engine still has of its messages from `number` on, in order, perhaps with holes.

    Raises TimeoutError when nothing comes for `patience_seconds`, zmq.ZMQError for an endpoint that cannot
    be. Each call has a socket of its own, so that it never gets the rest of an earlier answer.
    """
    socket = context.socket(zmq.DEALER)
    answer: asyncio.Future[Any] | None = None
    try:
        _set_options(socket)
        socket.connect(endpoint)
        await socket.send_multipart([b"", number.to_bytes(8, "big")])
        while True:
            answer = asyncio.ensure_future(socket.recv_multipart())
            await asyncio.wait((answer,), timeout=patience_seconds)
            if not answer.done():
                raise TimeoutError
            frames = answer.result()
            if len(frames) >= 2 and frames[-2] == _END:
                return
            message = _message(frames[-2:])
            if message is not None:
                yield message
    finally:
        if answer is not None:
            answer.cancel()
        socket.close(linger=0)


def _set_options(socket: zmq.asyncio.Socket) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.RCVHWM, WAITING_MESSAGES)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)


def _message(frames: Sequence[bytes]) -> Message | None:
    if len(frames) != 2 or len(frames[0]) != 8:
        return None
    return Message(int.from_bytes(frames[0], "big"), frames[1])
