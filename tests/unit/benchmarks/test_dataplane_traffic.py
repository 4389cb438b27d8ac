"""The data-plane benchmark's backend and its own client, against each other and against mistakes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.dataplane.backend import Connection, Ticker
from benchmarks.dataplane.client import FramingError, Load, unchunked
from benchmarks.dataplane.wire import answers, bodies, read_requests, request, write_requests


@asynccontextmanager
async def backend() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    ticker = Ticker(loop)
    server = await loop.create_server(lambda: Connection(ticker), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        ticker.stop()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """Answer every request (each must fit into one read) with the same bytes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def account(port: int, wires: list[bytes], *, texts: bool = False) -> dict[str, object]:
    found = await Load(port, wires, texts=texts).run(connections=2, seconds=0.05, grace_seconds=5)
    await asyncio.sleep(0.02)  # both ends close
    return found


def small(*, stream: bool = False) -> list[bytes]:
    return [request(body) for body in bodies(260, 8, stream=stream)]


def test_bodies_differ_have_their_size_and_begin_alike_in_fours() -> None:
    made = bodies(2000, 16)
    assert {len(body) for body in made} == {2000}
    assert len(set(made)) == 16
    assert len({body[:1700] for body in made}) == 4
    assert made == bodies(2000, 16)
    assert all(json.loads(body)["stream"] is False for body in made)


def test_requests_come_out_of_their_file_as_they_went_in(tmp_path: Path) -> None:
    wires = [b"a\n1\nb", b"", b"12\n"]
    write_requests(tmp_path / "file", wires)
    assert read_requests(tmp_path / "file") == wires


async def test_whole_answers_and_streams_of_the_backend_are_right_to_the_byte() -> None:
    async with backend() as port:
        found = await account(port, [*small(), *small(stream=True)])
    assert found["errors"] == 0
    assert isinstance(found["streams"], int)
    assert isinstance(found["requests"], int)
    assert 0 < found["streams"] < found["requests"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_backend_reads_bodies_in_pieces_and_in_chunks(stream: bool) -> None:
    body = bodies(20_000, 1, stream=stream)[0]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7000], body[7000:]))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    for wire in (
        request(body),
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n",
    ):
        async with backend() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for at in range(0, len(wire), 6001):
                writer.write(wire[at : at + 6001])
                await asyncio.sleep(0)
            answer = await reader.readuntil(answers().events[-1] if stream else answers().whole)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "wrong"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\r\n0\r\n\r\n", "framing"),
    ],
)
async def test_the_client_sees_what_is_wrong(answer: bytes, kind: str) -> None:
    async with answering(answer) as port:
        found = await account(port, small())
    assert found["requests"] == 0
    kinds = found["kinds_of_errors"]
    assert isinstance(kinds, dict)
    assert set(kinds) == {kind}


async def test_one_byte_of_a_stream_that_differs_is_an_error() -> None:
    body = answers().stream.replace(b"00041", b"00040")
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with answering(answer) as port:
        assert (await account(port, small(stream=True)))["requests"] == 0
        assert (await account(port, small(stream=True), texts=True))["requests"] == 0


async def test_events_that_were_written_anew_are_held_against_their_texts() -> None:
    body = answers().stream.replace(b'"id":"chatcmpl-benchmark"', b'"id":"another"')
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with answering(answer) as port:
        assert (await account(port, small(stream=True)))["requests"] == 0
        assert (await account(port, small(stream=True), texts=True))["errors"] == 0


@pytest.mark.parametrize("data", [b"3\r\nabc\r\n", b"3\r\nab\r\n0\r\n\r\n", b"0\r\n\r\nx", b"x\r\n"])
def test_broken_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        unchunked(data)


def test_chunks_are_put_together() -> None:
    assert unchunked(b"3\r\nabc\r\nA\r\n0\r\n\r\n56789\r\n0\r\n\r\n") == b"abc0\r\n\r\n56789"
