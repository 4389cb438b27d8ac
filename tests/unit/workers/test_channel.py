from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest

from prefix_router.workers import channel as channels
from prefix_router.workers.channel import Channel
from tests.support.waiting import until


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    text: str


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    number: int


@dataclass
class End:
    """One end of a channel and what it has got."""

    got: list[Ping | Pong] = field(default_factory=list)
    closed: int = 0
    channel: Channel[Ping | Pong, Ping | Pong] = field(init=False)

    def __post_init__(self) -> None:
        self.channel = Channel(Ping | Pong, self.got.append, self._count_close)

    def _count_close(self) -> None:
        self.closed += 1


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[End, End]]:
    ends = End(), End()
    for end, sock in zip(ends, socket.socketpair(), strict=True):
        await end.channel.open(sock)
    yield ends
    for end in ends:
        end.channel.close()
    await until(lambda: all(end.closed for end in ends))


@asynccontextmanager
async def end_and_socket() -> AsyncIterator[tuple[End, socket.socket]]:
    ours, theirs = socket.socketpair()
    end = End()
    await end.channel.open(ours)
    theirs.setblocking(False)
    with theirs:
        yield end, theirs
    await until(lambda: end.closed)


async def test_messages_arrive_whole_and_in_order() -> None:
    async with pair() as (here, there):
        sent: list[Ping | Pong] = [Ping("a"), Pong(1), Ping("b" * 1_000_000), Pong(2)]
        assert all(here.channel.send(message) for message in sent)
        await until(lambda: len(there.got) == len(sent))
        assert there.got == sent
        assert there.channel.send(Pong(3))
        await until(lambda: here.got == [Pong(3)])


async def test_a_message_may_come_byte_by_byte() -> None:
    async with end_and_socket() as (end, other):
        body = msgspec.msgpack.encode(Ping("slow"))
        loop = asyncio.get_running_loop()
        for byte in len(body).to_bytes(4, "big") + body:
            await loop.sock_sendall(other, bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: end.got == [Ping("slow")])


async def test_the_end_of_the_other_side_is_told_once_and_nothing_is_taken_any_more() -> None:
    async with pair() as (here, there):
        there.channel.close()
        await until(lambda: here.closed)
        assert not here.channel.send(Ping("too late"))
        assert here.closed == there.closed == 1


async def test_nothing_is_taken_before_there_is_an_other_side() -> None:
    assert not End().channel.send(Ping("too early"))


async def test_what_was_sent_before_a_close_still_arrives() -> None:
    async with pair() as (here, there):
        here.channel.send(Ping("x" * 3_000_000))
        await here.channel.flushed(5)
        await until(lambda: len(there.got) == 1)
        assert here.closed


async def test_a_farewell_to_somebody_who_does_not_read_is_given_up() -> None:
    async with end_and_socket() as (end, other):
        end.channel.send(Ping("x" * 3_000_000))
        await end.channel.flushed(0.01)
        assert not end.closed
        other.close()


async def test_somebody_who_does_not_read_makes_send_refuse_and_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MAX_UNSENT_BYTES", 100_000)
    async with end_and_socket() as (end, _):
        taken = 0
        while end.channel.send(Ping("x" * 10_000)):
            taken += 1
        assert 10 <= taken < 200
        assert not end.channel.send(Pong(1))


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\1\xc1", b"\0\0\0\2\x91\x01", b"\xff\xff\xff\xff"],
    ids=["garbage", "other type", "too long"],
)
async def test_what_is_no_message_ends_the_channel(data: bytes) -> None:
    async with end_and_socket() as (end, other):
        await asyncio.get_running_loop().sock_sendall(other, data)
        await until(lambda: end.closed)
        assert end.got == []
