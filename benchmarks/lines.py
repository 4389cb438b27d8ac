"""More clients than places, over several workers: is the limit kept, and does everybody get an equal share?

    python -m benchmarks.lines [--workers 2] [--seconds 4] [--rounds 3] [--output DIRECTORY]

One backend that answers after a fixed time and counts how many requests it has at once, a router that gives
it no more than so many, and clients in a closed loop, each on a connection of its own. The backend and the
clients run in this process. Reported: answers by status and reason, requests that found more of them at the
backend than the limit allows, and the requests and the longest wait of the least and the most served client.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.support.machine import description, free_port
from benchmarks.support.report import kinds, table, write
from benchmarks.support.router_process import RouterProcess

RESULTS = Path(__file__).parent / "results"
QUEUE_TIMEOUT_SECONDS = 5
_PAUSE_AFTER_REFUSAL_SECONDS = 0.01
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_REASON = re.compile(rb"\r\nx-prefix-router-reason: (\S+)", re.IGNORECASE)
_BODY = b'{"messages":[{"role":"user","content":"hello"}]}'
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


@dataclass(frozen=True, slots=True)
class Case:
    """places: limit of the backend. request_ms: how long it takes. max_waiting: length of each line."""

    places: int
    request_ms: float
    clients: int
    max_waiting: int = 1024


CASES = (Case(1, 2, 8), Case(4, 20, 24), Case(4, 100, 24), Case(8, 5, 32), Case(4, 2, 24, max_waiting=0))


@dataclass
class Backend:
    """Answers after a while. over: requests that came while there were `places` or more."""

    places: int
    seconds: float
    present: int = 0
    served: int = 0
    over: int = 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the router closes it."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = _LENGTH.search(head)
                await reader.readexactly(int(found[1]) if found else 0)
                if head.startswith(b"POST"):
                    await self._work()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _work(self) -> None:
        self.present += 1
        self.served += 1
        self.over += self.present > self.places
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.present -= 1


@dataclass
class Client:
    """One client, and what it has seen."""

    requests: int = 0
    longest_seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)

    async def run(self, port: int, until: float) -> None:
        """Send one request after the other until `until` (monotonic)."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.monotonic()) < until:
            writer.write(_REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            length, reason = _LENGTH.search(head), _REASON.search(head)
            await reader.readexactly(int(length[1]) if length else 0)
            status = head[9:12].decode()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            if status == "200":
                self.requests += 1
                self.answers["200"] += 1
            else:
                self.answers[f"{status} {reason[1].decode() if reason else ''}"] += 1
                await asyncio.sleep(_PAUSE_AFTER_REFUSAL_SECONDS)
        writer.close()


@dataclass(frozen=True, slots=True)
class Result:
    """What one case showed. over: of the requests that were served."""

    case: Case
    answers: dict[str, int]
    served: int
    over: int
    least_requests: int
    most_requests: int
    longest_seconds: float
    left_in_flight: int


async def play(case: Case, workers: int, seconds: float) -> Result:
    """Play one case."""
    backend = Backend(case.places, case.request_ms / 1000)
    port = free_port()
    server = await asyncio.start_server(backend.converse, "127.0.0.1", port, backlog=4096)
    settings = {
        "backends": [{"name": "a", "url": f"http://127.0.0.1:{port}"}],
        "limits": {"max_in_flight_per_backend": case.places},
        "queue": {"max_waiting": case.max_waiting, "timeout_seconds": QUEUE_TIMEOUT_SECONDS},
        "engine_metrics": {"interval_seconds": 0},
        "logging": {"level": "error"},
    }
    router = RouterProcess(settings, workers)
    try:
        await router.start()
        clients = [Client() for _ in range(case.clients)]
        until = time.monotonic() + seconds
        await asyncio.gather(*(client.run(router.port, until) for client in clients))
        left = await router.settled(seconds)
    finally:
        await router.stop()
        server.close()
    return Result(
        case,
        dict(sorted(sum((client.answers for client in clients), Counter()).items())),
        backend.served,
        backend.over,
        min(client.requests for client in clients),
        max(client.requests for client in clients),
        round(max(client.longest_seconds for client in clients), 2),
        left,
    )


def markdown(results: Sequence[Result], workers: int, command: str) -> str:
    """Return the report as text."""
    patience = f"{QUEUE_TIMEOUT_SECONDS} s"
    rows = [
        (
            result.case.places,
            f"{result.case.request_ms:g}",
            result.case.clients,
            result.case.max_waiting,
            kinds(result.answers),
            result.over,
            f"{result.least_requests:,} – {result.most_requests:,}",
            f"{result.longest_seconds:g}",
            result.left_in_flight,
        )
        for result in results
    ]
    titles = (
        *("places", "a request (ms)", "clients", "line (each worker)", "answers", "over the limit"),
        *("served, least – most served client", "longest wait (s)", "left in flight"),
    )
    return f"""# Lines of several workers

`{command}` on {description()}:
{workers} workers, one backend with a limit, clients in a closed loop; a request may wait {patience}.
How many clients each worker has is up to the kernel and differs from round to round.

{table(titles, rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each case and round")
    parser.add_argument("--rounds", type=int, default=3, help="of each case, with a router of its own")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where lines.md and lines.json go")
    options = parser.parse_args()
    results = []
    for case in (case for case in CASES for _ in range(options.rounds)):
        results.append(asyncio.run(play(case, options.workers, options.seconds)))
        print(results[-1], flush=True)
    command = " ".join(["python -m benchmarks.lines", *sys.argv[1:]])
    document = {
        "command": command,
        "machine": description(),
        "workers": options.workers,
        "results": [asdict(result) for result in results],
    }
    write(options.output, "lines", markdown(results, options.workers, command), document)
    return 0 if all(result.left_in_flight == 0 for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
