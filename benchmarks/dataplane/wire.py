"""What travels between the benchmark's backend and its clients: the request, the answer, the events."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

MODEL = "benchmark"
PATH = "/v1/chat/completions"
EVENTS = 64
"""Events of a stream, `[DONE]` not counted."""
UNFINISHED = "unfinished"
"""The kind of error of requests that had no whole answer when the time was up."""

_WORDS = [
    f"{head}{tail}" for head in ("ba", "ko", "lu", "mi", "ter", "son") for tail in ("r", "nd", "st", "l")
]
_PER_PREFIX = 4
"""Bodies that begin alike."""


def _words(source: random.Random, size: int) -> str:
    text = " ".join(source.choices(_WORDS, k=size // 4 + 1))
    return text[:size]


def bodies(size: int, count: int, *, stream: bool = False, seed: int = 1) -> list[bytes]:
    """Return `count` different chat requests of `size` bytes each, in an order that is always the same.

    Four at a time begin alike: the first nine tenths of their prompt are the same.
    """
    source = random.Random(f"{seed} {size} {stream}")
    made = []
    room = size - len(_body("", stream))
    for number in range(count):
        if number % _PER_PREFIX == 0:
            shared = _words(source, room * 9 // 10)
        made.append(_body(shared + _words(source, room - len(shared)), stream))
    source.shuffle(made)
    return made


def _body(text: str, stream: bool) -> bytes:
    document = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": EVENTS,
        "stream": stream,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def request(body: bytes) -> bytes:
    """Return a body as the request that goes on the wire."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: benchmark\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def write_requests(path: Path, wires: list[bytes]) -> None:
    """Write requests to a file: of each, its length and a line feed, then its bytes."""
    path.write_bytes(b"".join(b"%d\n%b" % (len(wire), wire) for wire in wires))


def read_requests(path: Path) -> list[bytes]:
    """Read what `write_requests` has written."""
    data = path.read_bytes()
    wires, at = [], 0
    while at < len(data):
        line_end = data.index(b"\n", at)
        begin, at = line_end + 1, line_end + 1 + int(data[at:line_end])
        wires.append(data[begin:at])
    return wires


@dataclass(frozen=True, slots=True)
class Answers:
    """The bodies that the backend answers with. events: of a stream, `[DONE]` the last of them."""

    whole: bytes
    events: tuple[bytes, ...]

    @property
    def stream(self) -> bytes:
        """All events, as a client has received them in the end."""
        return b"".join(self.events)

    @property
    def texts(self) -> list[str]:
        """What the events say, one text each; a router that writes events anew must keep these."""
        return [_text(number) for number in range(EVENTS)]


def answers() -> Answers:
    """Return them; they are always the same."""
    usage = {"prompt_tokens": 64, "completion_tokens": EVENTS, "total_tokens": 64 + EVENTS}
    content = " ".join(2 * _WORDS)[:160]
    whole = {
        "id": "chatcmpl-benchmark",
        "object": "chat.completion",
        "created": 1700000000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": usage,
    }
    events = [_event(number) for number in range(EVENTS)]
    return Answers(json.dumps(whole).encode(), (*events, b"data: [DONE]\n\n"))


def _text(number: int) -> str:
    return f" word {number:05d}"


def _event(number: int) -> bytes:
    last = number == EVENTS - 1
    document = {
        "id": "chatcmpl-benchmark",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": _text(number)},
                "finish_reason": "stop" if last else None,
            }
        ],
    }
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
