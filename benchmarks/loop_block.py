"""How long a hostile body holds up the event loop: `python benchmarks/loop_block.py [--json]`.

A router runs in this process; its client and its backend run in another one. Each body is sent once. A timer
of one millisecond ticks in the router's loop meanwhile: the longest time between two ticks is what another
request would have had to wait. It is given in processor time of this process, which does not count what else
the machine does, and as it was on the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import uvloop

from prefix_router.app import Router
from prefix_router.settings.load import load_text

MB = 1 << 20
_MODEL = b'"model":"m"}'
_CHAT = b'{"messages":[{"role":"user","content":'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_TOOL = b'{"type":"function","function":{"name":"f","description":"does this and that","parameters":{}}},'
_TEXT = b'{"role":"user","content":"' + rb"lorem ipsum \n" * 60 + b'"},'


def _content(value: bytes) -> bytes:
    return b"%b%b}],%b" % (_CHAT, value, _MODEL)


def _numbered(member: bytes, count: int) -> bytes:
    return b"".join(member % number for number in range(count))


BODIES: dict[str, Callable[[], bytes]] = {
    "60 MB of text in one message": lambda: _content(b'"%b"' % (b"a" * 60 * MB)),
    "60 MB of escapes in one message": lambda: _content(b'"%b"' % (rb"\n" * 30 * MB)),
    "60 MB of escaped quotes": lambda: _content(b'"%b"' % (rb"\"" * 30 * MB)),
    "3 million top-level members": lambda: b"{%b%b" % (_numbered(b'"%x":0,', 3_000_000), _MODEL),
    "3 million members of a message": lambda: _content(b'""%b' % _numbered(b',"%x":0', 3_000_000)),
    "an image of 20 MB": lambda: _content(
        b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}]'
        % (b"iVBORw0K" * (20 * MB // 8))
    ),
    "30 million levels of nesting": lambda: b'{"messages":%b%b,%b' % (b"[" * 30 * MB, b"]" * 30 * MB, _MODEL),
    "60,000 times 500 levels": lambda: b'{"x":[%b0],%b' % ((b"[" * 500 + b"]" * 500 + b",") * 60_000, _MODEL),
    "2 million messages": lambda: (
        b'{"messages":[%b{}],%b' % (b'{"role":"user","content":"x"},' * 2_000_000, _MODEL)
    ),
    "20 million empty arrays": lambda: b'{"messages":[%b{}],%b' % (b"[]," * 20_000_000, _MODEL),
    "40 MB of tools": lambda: (
        b'{"tools":[%b{}],"messages":[{"role":"user","content":"x"}],%b'
        % (_TOOL * (40 * MB // len(_TOOL)), _MODEL)
    ),
    "30 million token ids": lambda: b'{"prompt":[%b1],%b' % (b"1," * 30_000_000, _MODEL),
    "60 MB that are not JSON": lambda: b'{"messages":[' + b"\xff" * 60 * MB,
    "a conversation of 60 MB, model last": lambda: (
        b'{"messages":[%b{}],%b' % (_TEXT * (60 * MB // len(_TEXT)), _MODEL)
    ),
    "a conversation of 400 KB": lambda: b'{"messages":[%b{}],%b' % (_TEXT * 500, _MODEL),
}


class Ticker:
    """Looks at the clocks every millisecond and keeps the longest time between two looks, in seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reset()
        self._tick()

    def reset(self) -> None:
        self.longest_processor = self.longest_clock = 0.0
        self._processor, self._clock = time.process_time(), time.perf_counter()

    def _tick(self) -> None:
        processor, clock = time.process_time(), time.perf_counter()
        self.longest_processor = max(self.longest_processor, processor - self._processor)
        self.longest_clock = max(self.longest_clock, clock - self._clock)
        self._processor, self._clock = processor, clock
        self._loop.call_later(0.001, self._tick)


async def peer() -> None:
    """Be backend and client: print a port, then send the body that each line names and tell how it went."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                _, _, after = head.lower().partition(b"content-length: ")
                left = int(after.partition(b"\r\n")[0] or 0)
                while left > 0:
                    left -= len(await reader.read(MB))
                writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):  # until the router's process has ended
        port, name = line.rstrip("\n").split(" ", 1)
        body = BODIES[name]()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        path = b"completions" if b'"prompt"' in body[:20] else b"chat/completions"
        writer.write(b"POST /v1/%b HTTP/1.1\r\nHost: router\r\n" % path)
        writer.write(b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        print(len(body), flush=True)
        began = time.perf_counter()
        writer.write(body)
        answer = (await reader.read()).decode()
        seconds = time.perf_counter() - began
        writer.close()
        head = dict(line.split(": ", 1) for line in answer.lower().split("\r\n") if ": " in line)
        print(json.dumps([answer.split(" ")[1], head.get("x-prefix-router-reason", ""), seconds]), flush=True)


async def measure() -> list[dict[str, Any]]:
    child = await asyncio.create_subprocess_exec(sys.executable, __file__, "--peer", stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None
    backend = int(await _line(child))
    settings = {
        "backends": [{"url": f"http://127.0.0.1:{backend}", "models": ["m"]}],
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"host": "127.0.0.1", "port": 0},
        "engine_metrics": {"interval_seconds": 0},
        "health": {"interval_seconds": 3600},
        "logging": {"level": "error"},
    }
    router = Router(load_text(msgspec.json.encode(settings).decode(), "benchmark", {}))
    await router.start()
    ticker = Ticker()
    rows = []
    for name in BODIES:
        child.stdin.write(f"{router.port} {name}\n".encode())
        size = int(await _line(child))
        ticker.reset()
        began = time.process_time()
        status, reason, seconds = json.loads(await _line(child))
        await asyncio.sleep(0.2)  # the body is freed after its answer
        rows.append(
            {
                "body": name,
                "MB": round(size / MB, 1),
                "longest, processor ms": round(1e3 * ticker.longest_processor, 1),
                "longest, clock ms": round(1e3 * ticker.longest_clock, 1),
                "router's processor ms": round(1e3 * (time.process_time() - began)),
                "answered after ms": round(1e3 * seconds),
                "status": int(status),
                "reason": reason,
            }
        )
    await router.stop(grace_seconds=1)
    child.stdin.close()
    await child.wait()
    return rows


async def _line(child: Process) -> bytes:
    assert child.stdout is not None
    return await child.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        asyncio.run(peer())
        return
    rows = uvloop.run(measure())
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
