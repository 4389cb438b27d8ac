"""A thousand concurrent streams through one router process: does it hold, and in how much memory?

    python benchmarks/streams.py [--streams 1000] [--chunks 64] [--interval-ms 50] [--output FILE.json]

Every stream is checked byte for byte. The backend and the client are made of plain asyncio streams, in
processes of their own. Reported: streams that failed, the router's resident memory when idle and at its
highest, its CPU time per stream, and the in-flight count that is left. Exit status 1 when a stream failed, a
count is left, or memory is over its bound (60 MB idle, 160 MB at work).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import resource
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word %05d"}}],"usage":null}\n\n'
DONE = b"data: [DONE]\n\n"
IDLE_BOUND_MB, WORKING_BOUND_MB = 60, 160


async def _serve(port: int, chunks: int, interval_seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                found = re.search(rb"Content-Length: (\d+)", head)
                await reader.readexactly(int(found[1]) if found else 0)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                for number in range(chunks):
                    event = EVENT % number
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                    await asyncio.sleep(interval_seconds)
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def backend(port: int, chunks: int, interval_seconds: float) -> None:
    """Serve streams until terminated."""
    asyncio.run(_serve(port, chunks, interval_seconds))


async def _stream(port: int, number: int, expected: bytes) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(
            {"messages": [{"role": "user", "content": f"{number} " * 200}], "stream": True}
        ).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        await reader.readuntil(b"\r\n\r\n")
        received = bytearray()
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            received += (await reader.readexactly(size + 2))[:-2]
        writer.close()
        return bytes(received) == expected
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return False


async def _streams(port: int, count: int, expected: bytes) -> int:
    results = await asyncio.gather(*(_stream(port, number, expected) for number in range(count)))
    return results.count(False)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        body: bytes = response.read()
        return body


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--interval-ms", type=float, default=50)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    wanted = options.streams * 4
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))

    backend_ports = [_free_port(), _free_port()]
    backends = [
        multiprocessing.Process(
            target=backend, args=(port, options.chunks, options.interval_ms / 1000), daemon=True
        )
        for port in backend_ports
    ]
    for process in backends:
        process.start()
    port, admin_port = _free_port(), _free_port()
    command = [sys.executable, "-m", "prefix_router", "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--admin-port", str(admin_port), "--concurrency-threshold", "10000", "--log-level", "warning"]
    for backend_port in backend_ports:
        command += ["--backend", f"http://127.0.0.1:{backend_port}"]
    router = subprocess.Popen(command)
    try:
        watched = psutil.Process(router.pid)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                _get(f"http://127.0.0.1:{admin_port}/readyz")
                break
            except OSError:
                time.sleep(0.05)
        idle_mb = watched.memory_info().rss / 1e6
        highest_mb = 0.0
        expected = b"".join(EVENT % number for number in range(options.chunks)) + DONE

        async def measured() -> int:
            nonlocal highest_mb
            work = asyncio.ensure_future(_streams(port, options.streams, expected))
            while not work.done():
                highest_mb = max(highest_mb, watched.memory_info().rss / 1e6)
                await asyncio.wait([work], timeout=0.1)
            return work.result()

        cpu_before = sum(watched.cpu_times()[:2])
        failed = asyncio.run(measured())
        cpu_seconds = sum(watched.cpu_times()[:2]) - cpu_before
        time.sleep(0.2)
        status = json.loads(_get(f"http://127.0.0.1:{admin_port}/status"))
        left = sum(backend["in_flight"] for backend in status["backends"]) + status["active_requests"]
    finally:
        router.terminate()
        router.wait(30)
        for process in backends:
            process.terminate()
    result = {
        "streams": options.streams,
        "chunks": options.chunks,
        "interval_ms": options.interval_ms,
        "failed": failed,
        "in_flight_left": left,
        "resident_idle_mb": round(idle_mb, 1),
        "resident_highest_mb": round(highest_mb, 1),
        "router_cpu_ms_per_stream": round(cpu_seconds / options.streams * 1000, 3),
    }
    print(json.dumps(result, indent=2))
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    held = failed == 0 and left == 0 and idle_mb < IDLE_BOUND_MB and highest_mb < WORKING_BOUND_MB
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
